#include "text/token_decoder.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "core/unicode.h"
#include "text/byte_alphabet.h"
#include "text/json_fields.h"
#include "text/normalizer.h"

namespace hone {
namespace {

constexpr int kDeepestDecoder = 16;  // nesting of Sequences
constexpr std::string_view kKnownDecoders =
    "(known: ByteLevel, ByteFallback, Fuse, Metaspace, Replace, Strip, BPEDecoder)";

// Parses a byte-fallback token such as "<0x0A>", which represents a byte without a character in the vocabulary.
std::optional<char> fallback_byte(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') return std::nullopt;
  int value = 0;
  for (const char c : token.substr(3, 2)) {
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                             : -1;
    if (digit < 0) return std::nullopt;
    value = value * 16 + digit;
  }
  return static_cast<char>(value);
}

std::string one_character(const Json& json, const char* key, std::string_view decoder, std::string_view where) {
  std::string text = string_member(json, key, where);
  if (!is_valid_utf8(text) || count_code_points(text) != 1) {
    throw Error(where, text_of("decoder ", decoder, ": ", key, " is not one character"));
  }
  return text;
}

std::size_t count_member(const Json& json, const char* key, std::string_view where) {
  const Json& value = member(json, key);
  if (!value.is_number_integer() || value < 0 || value > 1'000'000) {
    throw Error(where, text_of("decoder Strip: ", key, " is ", value.dump(), ", expected a count"));
  }
  return value.get<std::size_t>();
}

}  // namespace

TokenDecoder::TokenDecoder(const Json& json, std::string_view where) {
  if (json.is_null()) throw Error(where, text_of("has no decoder ", kKnownDecoders));
  add(json, where, 0);
  if (steps_.empty()) steps_.push_back({.kind = Kind::kFuse});
  const bool has_bytes =
      std::any_of(steps_.begin(), steps_.end(), [](const Step& s) { return s.kind == Kind::kByteLevel; });
  if (has_bytes && steps_.size() > 1) throw Error(where, "a decoder Sequence of ByteLevel and others is not supported");
  bool fused = false;
  for (Step& step : steps_) {
    if (fused && step.kind != Kind::kStrip && step.kind != Kind::kFuse) {
      throw Error(where, "a decoder Sequence with other steps than Strip after Fuse is not supported");
    }
    step.fused = fused;
    fused = fused || step.kind == Kind::kFuse;
  }
}

void TokenDecoder::add(const Json& json, std::string_view where, int depth) {
  const std::string type = type_member(json, "decoder", where);
  if (type == "Sequence") {
    const Json& parts = member(json, "decoders");
    if (!parts.is_array() || depth >= kDeepestDecoder) throw Error(where, "decoder Sequence has no list `decoders`");
    for (const Json& part : parts) add(part, where, depth + 1);
  } else if (type == "ByteLevel") {
    steps_.push_back({.kind = Kind::kByteLevel});
  } else if (type == "ByteFallback") {
    steps_.push_back({.kind = Kind::kByteFallback});
  } else if (type == "Fuse") {
    steps_.push_back({.kind = Kind::kFuse});
  } else if (type == "Replace") {
    steps_.push_back({.kind = Kind::kReplace,
                      .content = replace_invalid_utf8(string_member(json, "content", where)),
                      .pattern = read_pattern(member(json, "pattern"), "decoder Replace", where)});
  } else if (type == "Strip") {
    steps_.push_back({.kind = Kind::kStrip,
                      .content = one_character(json, "content", type, where),
                      .start = count_member(json, "start", where),
                      .stop = count_member(json, "stop", where)});
  } else if (type == "Metaspace") {
    Step step{.kind = Kind::kMetaspace, .drops_first = true};
    step.pattern = std::make_shared<const Pattern>(Pattern::literal(
        member(json, "replacement").is_null() ? "\u2581" : one_character(json, "replacement", type, where)));
    if (!member(json, "prepend_scheme").is_null()) {
      step.drops_first = string_member(json, "prepend_scheme", where) != "never";
    } else {
      step.drops_first = bool_member(json, "add_prefix_space", true, where);
    }
    steps_.push_back(std::move(step));
  } else if (type == "BPEDecoder") {
    const std::string suffix = member(json, "suffix").is_null() ? "</w>" : string_member(json, "suffix", where);
    if (suffix.empty()) throw Error(where, "decoder BPEDecoder has an empty suffix");
    steps_.push_back({.kind = Kind::kSuffix, .pattern = std::make_shared<const Pattern>(Pattern::literal(suffix))});
  } else {
    throw Error(where, text_of("the decoder ", type, " is not supported ", kKnownDecoders));
  }
}

std::string TokenDecoder::bytes_of(const std::string& token) const {
  if (byte_level()) return alphabet_to_bytes(token).value_or(token);
  const bool falls_back =
      std::any_of(steps_.begin(), steps_.end(), [](const Step& step) { return step.kind == Kind::kByteFallback; });
  if (const auto byte = fallback_byte(token); byte && falls_back) return std::string(1, *byte);
  TokenStream stream(*this);
  std::string begin, text;
  stream.push("a", begin);  // the first token may lose a space
  stream.push(token, text);
  if (steps_.front().kind == Kind::kSuffix) {  // the last token is held back
    text.clear();
    stream.push("a", text);
    return text;
  }
  stream.finish(text);
  return text;
}

void TokenStream::push(std::size_t step, std::string_view token, std::string& out) {
  using Kind = TokenDecoder::Kind;
  if (step == decoder_.steps_.size()) {
    out.append(token);
    return;
  }
  const TokenDecoder::Step& what = decoder_.steps_[step];
  State& state = states_[step];
  switch (what.kind) {
    case Kind::kByteLevel:
      return push_bytes(state, step, token, out);
    case Kind::kByteFallback:
      return push_fallback(state, step, token, out);
    case Kind::kFuse:
      return push(step + 1, token, out);
    case Kind::kReplace:
      return push(step + 1, replace_matches(*what.pattern, token, what.content), out);
    case Kind::kStrip:
      return push_strip(state, step, token, out);
    case Kind::kMetaspace: {
      const bool drops = what.drops_first && !std::exchange(state.started, true);
      return push(step + 1, replace_matches(*what.pattern, token, drops ? "" : " "), out);
    }
    case Kind::kSuffix:  // becomes a space, except in the last token
      if (std::exchange(state.has_waiting, true)) {
        push(step + 1, replace_matches(*what.pattern, state.waiting, " "), out);
      }
      state.waiting = token;
      return;
  }
}

// Emits complete characters and holds an incomplete one back; bytes that cannot be part of a character become U+FFFD.
void TokenStream::push_bytes(State& state, std::size_t step, std::string_view bytes, std::string& out) {
  std::string& waiting = state.waiting;
  waiting.append(bytes);
  std::string text;
  std::size_t at = 0;
  while (at < waiting.size()) {
    const Utf8Unit unit = scan_utf8(waiting, at);
    if (unit.cut) break;
    text.append(unit.valid ? std::string_view(waiting).substr(at, unit.size) : kReplacementCharacter);
    at += unit.size;
  }
  waiting.erase(0, at);
  push(step + 1, text, out);
}

// A run of byte tokens is text if the whole run is valid UTF-8, otherwise one U+FFFD per byte. It is held back until it
// ends.
void TokenStream::push_fallback(State& state, std::size_t step, std::string_view token, std::string& out) {
  if (const auto byte = fallback_byte(token)) {
    state.waiting += *byte;
    return;
  }
  flush(step, out);
  push(step + 1, token, out);
}

void TokenStream::push_strip(State& state, std::size_t step, std::string_view token, std::string& out) {
  const TokenDecoder::Step& what = decoder_.steps_[step];
  const std::string& content = what.content;
  if (!what.fused) state = {};
  while (!state.started && state.stripped < what.start && token.starts_with(content)) {
    token.remove_prefix(content.size());
    ++state.stripped;
  }
  state.started = state.started || !token.empty();
  std::string text = std::move(state.waiting) + std::string(token);
  std::size_t kept = text.size();
  for (std::size_t i = 0; i < what.stop && std::string_view(text).substr(0, kept).ends_with(content); ++i) {
    kept -= content.size();
  }
  state.waiting = text.substr(kept);
  text.resize(kept);
  push(step + 1, text, out);
}

void TokenStream::flush(std::size_t step, std::string& out) {
  using Kind = TokenDecoder::Kind;
  State& state = states_[step];
  const std::string waiting = std::exchange(state.waiting, {});
  switch (decoder_.steps_[step].kind) {
    case Kind::kByteLevel:
      if (!waiting.empty()) push(step + 1, replace_invalid_utf8(waiting), out);
      break;
    case Kind::kByteFallback:
      if (is_valid_utf8(waiting)) {
        if (!waiting.empty()) push(step + 1, waiting, out);
      } else {
        for (std::size_t i = 0; i < waiting.size(); ++i) push(step + 1, kReplacementCharacter, out);
      }
      break;
    case Kind::kSuffix:
      if (state.has_waiting) push(step + 1, replace_matches(*decoder_.steps_[step].pattern, waiting, ""), out);
      break;
    default:
      break;
  }
}

void TokenStream::finish(std::string& out) {
  for (std::size_t step = 0; step < states_.size(); ++step) {
    flush(step, out);
    states_[step] = {};
  }
}

}  // namespace hone
