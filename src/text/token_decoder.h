// From tokens back to text: the decoder of tokenizer.json.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "text/pattern.h"

namespace hone {

// A chain of steps, each of which takes tokens and hands tokens on; the last ones, joined, are the text.
class TokenDecoder {
 public:
  // The "decoder" of tokenizer.json: ByteLevel, or ByteFallback, Fuse, Metaspace, Replace, Strip, BPEDecoder, or a
  // Sequence of them. Throws Error.
  TokenDecoder(const Json& json, std::string_view where);

  // Tokens are written in GPT-2's alphabet; the stream takes the bytes that they stand for.
  [[nodiscard]] bool byte_level() const { return steps_.front().kind == Kind::kByteLevel; }
  // What a token stands for within a text; of a byte that is no character, the byte.
  [[nodiscard]] std::string bytes_of(const std::string& token) const;

 private:
  enum class Kind { kByteLevel, kByteFallback, kFuse, kMetaspace, kReplace, kStrip, kSuffix };
  struct Step {
    Kind kind;
    std::string content = {};                          // kStrip: one character; kReplace: what is put there
    std::shared_ptr<const Pattern> pattern = nullptr;  // kReplace, kMetaspace, kSuffix
    std::size_t start = 0, stop = 0;                   // kStrip: at most so many characters at each end
    bool drops_first = false;                          // kMetaspace: the spaces of the first token
    bool fused = false;                                // kStrip: works on the whole text, not on each token
  };
  friend class TokenStream;
  void add(const Json& json, std::string_view where, int depth);

  std::vector<Step> steps_;
};

// One decoding, a token at a time. Text comes out as soon as nothing that follows can change it.
class TokenStream {
 public:
  explicit TokenStream(const TokenDecoder& decoder)
      : decoder_(decoder), states_(decoder.steps_.size()) {}  // outlives it

  void push(std::string_view token, std::string& out) { push(0, token, out); }
  // The end: what waited comes out, and the stream starts anew.
  void finish(std::string& out);

 private:
  struct State {
    bool started = false;      // kMetaspace: a token came; kStrip: something came that is not stripped
    std::size_t stripped = 0;  // kStrip: characters, of the whole text
    std::string waiting;       // bytes of a character, a run of bytes, spaces that may be the last, a last token
    bool has_waiting = false;  // kSuffix
  };
  void push(std::size_t step, std::string_view token, std::string& out);
  void push_bytes(State& state, std::size_t step, std::string_view bytes, std::string& out);
  void push_fallback(State& state, std::size_t step, std::string_view token, std::string& out);
  void push_strip(State& state, std::size_t step, std::string_view token, std::string& out);
  void flush(std::size_t step, std::string& out);

  const TokenDecoder& decoder_;
  std::vector<State> states_;
};

}  // namespace hone
