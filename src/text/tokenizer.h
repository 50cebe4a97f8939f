// BPE tokenizers in the Hugging Face tokenizer.json form, or as tiktoken ranks.
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
// Ids are below it: tables by id are as long as the largest one, and a line of a file must not ask for gigabytes.
inline constexpr TokenId kMostTokens = 1 << 21;

struct TokenizerFile;
class TokenDecoder;

class Tokenizer {
 public:
  // Reads FOLDER/tokenizer.json, else tiktoken ranks (*.tiktoken, tokenizer.model; see text/ranks.h), and
  // tokenizer_config.json where there is one. Throws Error.
  [[nodiscard]] static Tokenizer load(const std::filesystem::path& folder);

  // From the text of the two files; no config where it is empty. `where` names them in errors.
  [[nodiscard]] static Tokenizer from_json(std::string_view tokenizer_json, std::string_view config_json = {},
                                           std::string_view where = "tokenizer.json");

  // From the text of a file of tiktoken ranks: base64 of a token's bytes and its rank, a line each. Without a config
  // that lists special tokens, those of the model that the number of ranks tells. Throws Error.
  [[nodiscard]] static Tokenizer from_ranks(std::string_view ranks, std::string_view config_json = {},
                                            std::string_view where = "tokenizer.model");

  // Ids as the reference's encode(text, add_special_tokens=False) gives them; special tokens written in the text are
  // recognised. Invalid UTF-8 is read as Python's bytes.decode(errors='replace') reads it. Thread-safe.
  // A character that the vocabulary cannot write is an Error (the reference drops it), unless there is an unk_token.
  [[nodiscard]] std::vector<TokenId> encode(std::string_view text) const;
  // What the reference's encode(text, add_special_tokens=True) puts before a text: the BOS of Llama 3, say.
  [[nodiscard]] const std::vector<TokenId>& leading_tokens() const;
  // And behind it: an EOS, in few tokenizers.
  [[nodiscard]] const std::vector<TokenId>& trailing_tokens() const;
  [[nodiscard]] std::string decode(std::span<const TokenId> ids, bool skip_special_tokens = false) const;

  [[nodiscard]] std::int64_t vocab_size() const;  // added tokens included: the largest id + 1
  [[nodiscard]] std::optional<TokenId> token_id(std::string_view token) const;
  [[nodiscard]] std::optional<TokenId> eos_token_id() const;  // of tokenizer_config.json
  [[nodiscard]] std::optional<TokenId> bos_token_id() const;
  [[nodiscard]] std::optional<TokenId> pad_token_id() const;
  [[nodiscard]] bool is_special(TokenId id) const;
  // The bytes that an id stands for (a special token: its text); empty for an id that is not in use.
  [[nodiscard]] std::string_view token_bytes(TokenId id) const;

  // Adds special tokens that are not there yet, with the next ids.
  void add_special_tokens(std::span<const std::string> tokens);
  void set_eos_token(std::string_view token);
  // The template text of chat_template.jinja or of tokenizer_config.json; empty where there is none.
  [[nodiscard]] const std::string& chat_template() const;
  void set_chat_template(std::string text);
  // SHA-256 of all that ids and special tokens depend on; of the template nothing.
  [[nodiscard]] std::string digest() const;
  // Writes tokenizer.json, tokenizer_config.json and, where there is a template, chat_template.jinja.
  void save(const std::filesystem::path& folder) const;

 private:
  friend class Detokenizer;
  struct Data;
  explicit Tokenizer(std::shared_ptr<const Data> data);
  [[nodiscard]] static Tokenizer from_file(const TokenizerFile& file, std::string_view config_json,
                                           std::string_view where);
  // What the decoder is given for an id; empty for an id that is not in use.
  [[nodiscard]] std::string_view decoder_token(TokenId id) const;
  [[nodiscard]] const TokenDecoder& decoder() const;
  std::shared_ptr<const Data> data_;
};

}  // namespace hone
