// Converts tokens back to text: the decoder of tokenizer.json.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "text/pattern.h"

namespace hone {

// A chain of steps, each of which takes tokens and passes tokens on. The text is the output of the last step, joined.
class TokenDecoder {
 public:
  // Reads the "decoder" of tokenizer.json: ByteLevel, or ByteFallback, Fuse, Metaspace, Replace, Strip, BPEDecoder, or
  // a Sequence of them. Throws Error for any other.
  TokenDecoder(const Json& json, std::string_view where);

  // Returns true if tokens are written in GPT-2's byte alphabet. The stream then takes the bytes that they represent.
  [[nodiscard]] bool byte_level() const { return steps_.front().kind == Kind::kByteLevel; }
  // Returns the bytes of a token within a text. For a byte-fallback token, this is the single byte.
  [[nodiscard]] std::string bytes_of(const std::string& token) const;

 private:
  enum class Kind { kByteLevel, kByteFallback, kFuse, kMetaspace, kReplace, kStrip, kSuffix };
  struct Step {
    Kind kind;
    std::string content = {};                          // kStrip: one character; kReplace: the replacement
    std::shared_ptr<const Pattern> pattern = nullptr;  // kReplace, kMetaspace, kSuffix
    std::size_t start = 0, stop = 0;                   // kStrip: maximum number of characters at each end
    bool drops_first = false;                          // kMetaspace: remove the spaces of the first token
    bool fused = false;                                // kStrip: applies to the whole text, not to each token
  };
  friend class TokenStream;
  void add(const Json& json, std::string_view where, int depth);

  std::vector<Step> steps_;
};

// Decodes token by token. Text is emitted as soon as no later token can change it.
class TokenStream {
 public:
  explicit TokenStream(const TokenDecoder& decoder)
      : decoder_(decoder), states_(decoder.steps_.size()) {}  // `decoder` must outlive it

  void push(std::string_view token, std::string& out) { push(0, token, out); }
  // Ends the text: emits what was held back and resets the stream.
  void finish(std::string& out);

 private:
  struct State {
    bool started = false;      // kMetaspace: a token came; kStrip: a character came that is not stripped
    std::size_t stripped = 0;  // kStrip: characters stripped from the whole text
    std::string waiting;  // held back: bytes of a character, a run of bytes, possibly final spaces, or a last token
    bool has_waiting = false;  // kSuffix: `waiting` holds a token
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
