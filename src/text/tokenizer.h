// BPE tokenizers, read from Hugging Face's tokenizer.json or from tiktoken ranks.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hone {

using TokenId = std::int32_t;
// Upper limit of ids (exclusive). Tables by id are as long as the largest id, so without a limit one line of a file
// could demand gigabytes.
inline constexpr TokenId kMostTokens = 1 << 21;

struct TokenizerFile;
class TokenDecoder;

// A tokenizer. Copies share immutable data.
class Tokenizer {
 public:
  // Loads folder/tokenizer.json, otherwise tiktoken ranks (*.tiktoken, tokenizer.model; see text/ranks.h), and
  // tokenizer_config.json if it exists. Throws Error.
  [[nodiscard]] static Tokenizer load(const std::filesystem::path& folder);

  // Builds a tokenizer from the text of the two files; `config_json` may be empty. `where` names the files in errors.
  [[nodiscard]] static Tokenizer from_json(std::string_view tokenizer_json, std::string_view config_json = {},
                                           std::string_view where = "tokenizer.json");

  // Builds a tokenizer from the text of a tiktoken ranks file: on each line the base64 of a token's bytes and its rank.
  // If `config_json` lists no special tokens, those of the known model with as many ranks are used. Throws Error.
  [[nodiscard]] static Tokenizer from_ranks(std::string_view ranks, std::string_view config_json = {},
                                            std::string_view where = "tokenizer.model");

  // Returns the ids that the reference's encode(text, add_special_tokens=False) returns; special tokens in the text are
  // recognized. Invalid UTF-8 is treated like Python's bytes.decode(errors='replace'). Throws Error for a character
  // that the vocabulary cannot represent, unless there is an unk_token (the reference drops such a character).
  // Thread-safe.
  [[nodiscard]] std::vector<TokenId> encode(std::string_view text) const;
  // Tokens that the reference's encode(text, add_special_tokens=True) puts before a text, such as the BOS of Llama 3.
  [[nodiscard]] const std::vector<TokenId>& leading_tokens() const;
  // Tokens that it puts after a text; few tokenizers add an EOS there.
  [[nodiscard]] const std::vector<TokenId>& trailing_tokens() const;
  [[nodiscard]] std::string decode(std::span<const TokenId> ids, bool skip_special_tokens = false) const;

  [[nodiscard]] std::int64_t vocab_size() const;  // largest id + 1, including added tokens
  [[nodiscard]] std::optional<TokenId> token_id(std::string_view token) const;
  [[nodiscard]] std::optional<TokenId> eos_token_id() const;  // from tokenizer_config.json
  [[nodiscard]] std::optional<TokenId> bos_token_id() const;
  [[nodiscard]] std::optional<TokenId> pad_token_id() const;
  [[nodiscard]] bool is_special(TokenId id) const;
  // Bytes that an id represents (for a special token its text); empty for an unused id.
  [[nodiscard]] std::string_view token_bytes(TokenId id) const;

  // Adds the special tokens that do not exist yet, with the next free ids.
  void add_special_tokens(std::span<const std::string> tokens);
  void set_eos_token(std::string_view token);
  // Template text of chat_template.jinja or tokenizer_config.json; empty if there is none.
  [[nodiscard]] const std::string& chat_template() const;
  void set_chat_template(std::string text);
  // SHA-256 of everything that ids and special tokens depend on; the chat template is not included.
  [[nodiscard]] std::string digest() const;
  // Writes tokenizer.json, tokenizer_config.json and, if there is a template, chat_template.jinja.
  void save(const std::filesystem::path& folder) const;

 private:
  friend class Detokenizer;
  struct Data;
  explicit Tokenizer(std::shared_ptr<const Data> data);
  [[nodiscard]] static Tokenizer from_file(const TokenizerFile& file, std::string_view config_json,
                                           std::string_view where);
  // Token text that the decoder takes for an id; empty for an unused id.
  [[nodiscard]] std::string_view decoder_token(TokenId id) const;
  [[nodiscard]] const TokenDecoder& decoder() const;
  std::shared_ptr<const Data> data_;
};

}  // namespace hone
