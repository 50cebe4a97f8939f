#include "grammar/grammar.h"

#include <dlpack/dlpack.h>
#include <xgrammar/xgrammar.h>

#include <algorithm>
#include <bit>
#include <exception>
#include <functional>
#include <optional>
#include <utility>
#include <variant>

#include "core/error.h"
#include "core/json_value.h"
#include "core/parallel.h"
#include "grammar/grammar_check.h"

// xgrammar is compiled with XGRAMMAR_LOG_CUSTOMIZE: it reports problems to these two functions.
namespace xgrammar {

namespace {

// The first warning of the conversion that runs in this thread.
thread_local std::optional<std::string> first_warning;  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)

}  // namespace

// Their names are xgrammar's. NOLINTBEGIN(readability-identifier-naming)
[[noreturn]] void LogFatalImpl(const std::string&, int, const std::string& message) { throw hone::Error(message); }

void LogMessageImpl(const std::string&, int, int, const std::string& message) {
  if (!first_warning) first_warning = message;
}
// NOLINTEND(readability-identifier-naming)

}  // namespace xgrammar

namespace hone {

struct GrammarCompiler::Vocabulary {
  xgrammar::TokenizerInfo tokens;
  xgrammar::GrammarCompiler compiler;
  std::vector<std::uint32_t> without_controls;  // mask of tokens without control characters but line breaks
};

struct Grammar::Impl {
  std::shared_ptr<const void> vocabulary;
  xgrammar::CompiledGrammar compiled;
  // Tokens that may come anywhere; null: all. xgrammar lets strings of limited length have control characters except
  // line breaks, which JSON forbids. Without tabs nothing is lost: they are white space only.
  const std::vector<std::uint32_t>* permitted = nullptr;
};

struct TokenMatcher::Impl {
  std::shared_ptr<const Grammar> grammar;
  xgrammar::GrammarMatcher matcher;
  int vocab_size = 0;
};

namespace {

// Texts of others in the messages of xgrammar may be long.
constexpr std::size_t kMostMessageBytes = 300;

std::string short_message(std::string_view message) {
  const std::size_t end = message.find('\n');
  message = message.substr(0, std::min(end, kMostMessageBytes));
  // A failed check begins with its source: "Check failed: (x) is false: what is wrong".
  constexpr std::string_view kCheck = " is false: ";
  if (const std::size_t at = message.find(kCheck); message.starts_with("Check failed") && at != std::string_view::npos)
    message.remove_prefix(at + kCheck.size());
  return std::string(message);
}

std::vector<std::string> texts_of_tokens(const Tokenizer& tokenizer, std::int64_t vocab_size) {
  std::vector<std::string> texts;  // empty: never allowed
  const auto count = static_cast<TokenId>(std::min(tokenizer.vocab_size(), vocab_size));
  texts.reserve(static_cast<std::size_t>(count));
  for (TokenId token = 0; token < count; ++token)
    texts.emplace_back(tokenizer.is_special(token) ? std::string_view() : tokenizer.token_bytes(token));
  return texts;
}

std::vector<std::uint32_t> mask_without_controls(const std::vector<std::string>& texts, std::int64_t vocab_size) {
  std::vector<std::uint32_t> mask(static_cast<std::size_t>(mask_words(vocab_size)), ~0U);
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\r'; };
  for (std::size_t token = 0; token < texts.size(); ++token)
    if (std::ranges::any_of(texts[token], is_control)) mask[token / 32] &= ~(1U << (token % 32));
  return mask;
}

// A choice as EBNF.
std::string choice_grammar(const std::string& choices) {
  const Json list = parse_json(choices, "choice");
  if (!list.is_array() || list.empty()) throw Error("is no array of strings");
  std::string text = "root ::= ";
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (!list[i].is_string()) throw Error(text_of("choice ", i, " is no string"));
    text += i > 0 ? " | \"" : "\"";
    for (const char c : list[i].get_ref<const std::string&>()) {
      constexpr std::string_view kDigits = "0123456789abcdef";
      const auto byte = static_cast<unsigned char>(c);
      if (c == '"' || c == '\\') {
        text += {'\\', c};
      } else if (byte < 0x20 || byte == 0x7f) {
        text += {'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]};
      } else {
        text += c;
      }
    }
    text += '"';
  }
  return text;
}

xgrammar::Grammar converted(const GrammarSpec& spec, const xgrammar::TokenizerInfo& tokens) {
  using xgrammar::Grammar;
  switch (spec.kind) {
    case GrammarKind::kJsonSchema:
      return Grammar::FromJSONSchema(spec.text, true, std::nullopt, std::nullopt, spec.strict);
    case GrammarKind::kRegex:
      return Grammar::FromRegex(spec.text);
    case GrammarKind::kChoice:
      return Grammar::FromEBNF(choice_grammar(spec.text));
    case GrammarKind::kGrammar:
      return spec.text.find("::=") == std::string::npos ? Grammar::FromLark(spec.text, tokens)
                                                        : Grammar::FromEBNF(spec.text);
    case GrammarKind::kStructuralTag:
      break;
  }
  auto result = Grammar::FromStructuralTag(spec.text, tokens);
  if (const auto* error = std::get_if<xgrammar::StructuralTagError>(&result))
    std::visit([](const auto& what) { throw Error(what.what()); }, *error);
  return std::get<Grammar>(std::move(result));
}

// Converts a description and refuses one of which xgrammar would ignore a part.
xgrammar::Grammar checked_grammar(const GrammarSpec& spec, const xgrammar::TokenizerInfo& tokens) {
  check_grammar(spec);
  xgrammar::first_warning.reset();
  xgrammar::Grammar grammar = converted(spec, tokens);
  if (xgrammar::first_warning) throw Error(*xgrammar::first_warning);
  return grammar;
}

}  // namespace

Grammar::Grammar(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Grammar::~Grammar() = default;
std::size_t Grammar::bytes() const { return impl_->compiled.MemorySizeBytes(); }

GrammarCompiler::GrammarCompiler(const Tokenizer& tokenizer, std::int64_t vocab_size, const GrammarLimits& limits)
    : limits_(limits) {
  // Stop tokens are given to each matcher.
  const std::vector<std::string> texts = texts_of_tokens(tokenizer, vocab_size);
  xgrammar::TokenizerInfo tokens(texts, xgrammar::VocabType::RAW, static_cast<int>(vocab_size),
                                 std::vector<std::int32_t>{});
  xgrammar::GrammarCompiler compiler(tokens, std::min(thread_count(), 8), false);
  vocabulary_ = std::make_shared<Vocabulary>(
      Vocabulary{std::move(tokens), std::move(compiler), mask_without_controls(texts, vocab_size)});
}

std::shared_ptr<const Grammar> GrammarCompiler::compile_now(const GrammarSpec& spec) const {
  try {
    const xgrammar::Grammar source = checked_grammar(spec, vocabulary_->tokens);
    xgrammar::GrammarCompiler compiler = vocabulary_->compiler;  // a handle of the same compiler
    const bool is_json = spec.kind == GrammarKind::kJsonSchema;
    auto grammar = std::make_shared<const Grammar>(std::make_unique<Grammar::Impl>(Grammar::Impl{
        vocabulary_, compiler.CompileGrammar(source), is_json ? &vocabulary_->without_controls : nullptr}));
    std::vector<std::uint32_t> mask(static_cast<std::size_t>(mask_words(vocabulary_->tokens.GetVocabSize())));
    TokenMatcher first(grammar, {});
    if (first.fill_mask(mask) == 0 && !first.may_end())
      throw Error("allows no text that the vocabulary of the model can write");
    return grammar;
  } catch (const std::exception& error) {
    throw Error(short_message(error.what()));
  }
}

TokenMatcher::TokenMatcher(std::shared_ptr<const Grammar> grammar, std::vector<TokenId> stop_tokens) {
  std::optional<std::vector<int>> stops;
  if (!stop_tokens.empty()) stops.emplace(stop_tokens.begin(), stop_tokens.end());
  xgrammar::GrammarMatcher matcher(grammar->impl().compiled, stops);
  const int vocab_size = grammar->impl().compiled.GetTokenizerInfo().GetVocabSize();
  impl_ = std::make_unique<Impl>(Impl{std::move(grammar), std::move(matcher), vocab_size});
}

TokenMatcher::~TokenMatcher() = default;
TokenMatcher::TokenMatcher(TokenMatcher&&) noexcept = default;
TokenMatcher& TokenMatcher::operator=(TokenMatcher&&) noexcept = default;

bool TokenMatcher::accept(TokenId token) { return !is_finished() && impl_->matcher.AcceptToken(token); }

bool TokenMatcher::accept_text(std::string_view text) {
  return !is_finished() && (text.empty() || impl_->matcher.AcceptString(std::string(text)));
}

std::int64_t TokenMatcher::fill_mask(std::span<std::uint32_t> mask) {
  std::ranges::fill(mask, 0U);
  if (is_finished()) return 0;
  HONE_ASSERT(std::ssize(mask) == mask_words(impl_->vocab_size), std::ssize(mask), " words of ", impl_->vocab_size);
  std::int64_t shape = std::ssize(mask);
  DLTensor tensor{.data = mask.data(),
                  .device = {kDLCPU, 0},
                  .ndim = 1,
                  .dtype = xgrammar::GetBitmaskDLType(),
                  .shape = &shape,
                  .strides = nullptr,
                  .byte_offset = 0};
  (void)impl_->matcher.FillNextTokenBitmask(&tensor);  // returns true if the mask forbids a token
  if (const int used = impl_->vocab_size % 32; used != 0) mask.back() &= (1U << used) - 1U;
  if (const std::vector<std::uint32_t>* permitted = impl_->grammar->impl().permitted; permitted != nullptr)
    std::ranges::transform(mask, *permitted, mask.begin(), std::bit_and());
  std::int64_t count = 0;
  for (const std::uint32_t word : mask) count += std::popcount(word);
  return count;
}

bool TokenMatcher::may_end() const { return is_finished() || impl_->matcher.IsCompleted(); }
bool TokenMatcher::is_finished() const { return impl_->matcher.IsTerminated(); }
void TokenMatcher::roll_back(std::int64_t tokens) { impl_->matcher.Rollback(static_cast<int>(tokens)); }

}  // namespace hone
