#include "data/encode.h"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <limits>
#include <utility>

#include "core/error.h"
#include "core/json_value.h"
#include "core/log.h"
#include "core/parallel.h"
#include "core/strings.h"
#include "data/encode_rows.h"
#include "data/render.h"
#include "data/target_mask.h"

namespace hone {
namespace {

struct PendingRow {
  Json row;
  RowPlace place;
  std::string fault;          // reason why the row is unusable
  std::exception_ptr defect;  // any other exception than Error
};

void encode_block(std::vector<PendingRow>& block, const std::function<void(std::size_t, const Json&)>& encode) {
  parallel_for(static_cast<std::int64_t>(block.size()), 8, [&](std::int64_t begin, std::int64_t end) {
    for (auto slot = static_cast<std::size_t>(begin); slot < static_cast<std::size_t>(end); ++slot) {
      PendingRow& pending = block[slot];
      try {
        encode(slot, pending.row);
      } catch (const Error& error) {
        pending.fault = error.what();
      } catch (...) {
        pending.defect = std::current_exception();
      }
    }
  });
}

std::int64_t count_targets(const TokenizedExample& example) {
  if (example.tokens.empty()) return 0;
  if (example.is_target.empty()) return static_cast<std::int64_t>(example.tokens.size()) - 1;
  return std::count(example.is_target.begin() + 1, example.is_target.end(), 1);
}

// Returns the target mask of a row with input_ids, read as TRL's collator reads it; empty: all tokens are targets.
std::vector<std::uint8_t> tokenized_mask(const Json& row, LossOn loss, std::span<const TokenId> tokens) {
  const char* column = loss == LossOn::kAssistant ? "assistant_masks" : "completion_mask";
  if (loss == LossOn::kAll) return {};
  if (!row.contains(column)) {
    if (loss != LossOn::kAutomatic) throw Error(text_of("input_ids come without ", column));
    if (!row.contains("labels")) return {};
    column = "labels";
  }
  const Json& values = row.at(column);
  if (!values.is_array() || values.size() != tokens.size()) {
    throw Error(text_of("column ", column, " is not a list of ", tokens.size(), " numbers, one for each of input_ids"));
  }
  std::vector<std::uint8_t> mask;
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    const bool is_label = std::string_view(column) == "labels";
    const bool is_target = is_label ? values[t] != -100 : values[t] == 1 || values[t] == true;
    if (is_label && is_target && values[t] != tokens[t]) {
      throw Error(text_of("label ", t, " is ", values[t].dump(), ", neither -100 nor the token ", tokens[t]));
    }
    mask.push_back(is_target ? 1 : 0);
  }
  return mask;
}

TokenizedExample read_tokenized(const Json& row, const Tokenizer& tokenizer, LossOn loss) {
  const Json& ids = row.at("input_ids");
  if (!ids.is_array()) throw Error(text_of("column input_ids is ", ids.type_name(), ", not a list of ids"));
  TokenizedExample example;
  for (const Json& id : ids) {
    if (!id.is_number_integer() || id < 0 || id >= tokenizer.vocab_size()) {
      throw Error(
          text_of("input_ids contains ", id.dump(), "; the tokenizer's ids are 0 to ", tokenizer.vocab_size() - 1));
    }
    example.tokens.push_back(id.get<TokenId>());
  }
  example.is_target = tokenized_mask(row, loss, example.tokens);
  return example;
}

struct EncodedExample {
  TokenizedExample example;
  std::int64_t targets = 0;
  bool is_cut = false;
};

TokenizedExample tokenize(const Json& row, const Tokenizer& tokenizer, const ChatTemplate& chat_template,
                          const Json& variables, const EncodeOptions& options) {
  if (row.contains("input_ids")) return read_tokenized(row, tokenizer, options.loss);
  if (options.tokens_only) throw Error("no column input_ids, which skip_prepare_dataset requires");
  const RenderedRow rendered = render_row(row, chat_template, variables, options);
  TokenizedExample out;
  auto& [tokens, is_target] = out;
  tokens = tokenizer.encode(rendered.text);
  if (!rendered.all_targets) is_target = target_mask(tokenizer, rendered.text, tokens, rendered.targets);
  if (rendered.is_plain) {
    const std::vector<TokenId>& leading = tokenizer.leading_tokens();
    // Adds BOS and EOS unless the text already contains them.
    if (tokens.size() < leading.size() || !std::equal(leading.begin(), leading.end(), tokens.begin())) {
      tokens.insert(tokens.begin(), leading.begin(), leading.end());
      if (!rendered.all_targets) is_target.insert(is_target.begin(), leading.size(), 0);
    }
    const auto eos = tokenizer.eos_token_id();
    if (!eos && !options.eos_optional) throw Error("the tokenizer has no eos_token, which texts must end with");
    if (eos && (tokens.empty() || tokens.back() != *eos)) {
      tokens.push_back(*eos);
      if (!rendered.all_targets) is_target.push_back(1);
    }
  }
  return out;
}

EncodedExample encode_example(const Json& row, const Tokenizer& tokenizer, const ChatTemplate& chat_template,
                              const Json& variables, const EncodeOptions& options) {
  EncodedExample out{.example = tokenize(row, tokenizer, chat_template, variables, options)};
  auto& [tokens, is_target] = out.example;
  const auto limit = static_cast<std::size_t>(options.max_length);
  out.is_cut = limit > 0 && tokens.size() > limit;
  if (out.is_cut) {
    tokens.resize(limit);
    if (!is_target.empty()) is_target.resize(limit);
  }
  out.targets = count_targets(out.example);
  if (out.targets == 0) {
    throw Error(out.is_cut ? text_of("no target tokens within max_length ", limit) : "no target tokens");
  }
  return out;
}

}  // namespace

std::vector<std::uint32_t> encode_rows(const Source& source, EncodingReport& report,
                                       const std::function<void(std::size_t, const Json&)>& encode,
                                       const std::function<void(std::size_t)>& take) {
  std::vector<PendingRow> block;
  std::int64_t taken = 0;
  constexpr std::uint32_t kUnusable = std::numeric_limits<std::uint32_t>::max();
  // [usable and unusable rows, in file order]: number of the call of take; used if the source has an order
  std::vector<std::uint32_t> numbers;
  const bool has_order = !source.order().empty();
  const std::int64_t bad_before = report.bad.count();
  const auto flush = [&] {
    encode_block(block, encode);
    for (std::size_t slot = 0; slot < block.size(); ++slot) {
      if (block[slot].defect) std::rethrow_exception(block[slot].defect);
      if (!block[slot].fault.empty()) {
        report.bad.add(block[slot].place, block[slot].fault);
        if (has_order) numbers.push_back(kUnusable);
        continue;
      }
      if (has_order) numbers.push_back(static_cast<std::uint32_t>(taken));
      take(slot);
      ++taken;
    }
    block.clear();
  };
  source.for_each_row(report.bad, [&](Json& row, const RowPlace& place) {
    block.push_back({.row = std::move(row), .place = place, .fault = {}, .defect = {}});
    if (block.size() == kRowsAtOnce) flush();
  });
  flush();
  const std::int64_t rows = taken + report.bad.count() - bad_before;
  report.rows += rows;
  if (taken == 0) {
    throw Error(source.name(), rows == 0 ? "holds no rows" : "leaves nothing to use: " + report.bad.describe(rows));
  }
  // Translate the source's order of rows to the numbers of the taken rows.
  std::vector<std::uint32_t> order;
  for (const std::uint32_t row : source.order()) {
    if (row < numbers.size() && numbers[row] != kUnusable) order.push_back(numbers[row]);
  }
  return order;
}

void EncodingReport::log(std::string_view source, std::string_view limit) const {
  if (bad.count() > 0) log_warning(text_of(source, ": ", bad.describe(rows)));
  if (cut > 0) {
    char share[16];
    std::snprintf(share, sizeof share, "%.1f%%", 100.0 * static_cast<double>(cut) / static_cast<double>(examples));
    log_info(text_of(source, ": ", format_count(cut), " of ", format_count(examples), " (", share,
                     ") were longer than ", limit, " and were truncated"));
  }
}

Json template_variables(const Tokenizer& tokenizer) {
  Json variables = Json::object();
  const auto add = [&](const char* name, std::optional<TokenId> id) {
    if (id) variables[name] = std::string(tokenizer.token_bytes(*id));
  };
  add("bos_token", tokenizer.bos_token_id());
  add("eos_token", tokenizer.eos_token_id());
  add("pad_token", tokenizer.pad_token_id());
  return variables;
}

ExampleSet encode_examples(const Source& source, const Tokenizer& tokenizer, const ChatTemplate& chat_template,
                           const EncodeOptions& options, EncodingReport& report) {
  if (options.max_length < 0) throw Error("max_length", text_of("is ", options.max_length), "it must be above 0");
  const Json variables = template_variables(tokenizer);
  std::vector<EncodedExample> slots(kRowsAtOnce);
  ExampleSetBuilder builder;
  const std::vector<std::uint32_t> order = encode_rows(
      source, report,
      [&](std::size_t slot, const Json& row) {
        slots[slot] = encode_example(row, tokenizer, chat_template, variables, options);
      },
      [&](std::size_t slot) {
        const EncodedExample& encoded = slots[slot];
        builder.add(encoded.example);
        ++report.examples;
        report.tokens += static_cast<std::int64_t>(encoded.example.tokens.size());
        report.target_tokens += encoded.targets;
        report.cut += encoded.is_cut ? 1 : 0;
      });
  ExampleSet set = std::move(builder).finish();
  if (order.empty()) return set;
  ExampleSetBuilder ordered;
  for (const std::uint32_t example : order) ordered.add(set[example]);
  return std::move(ordered).finish();
}

}  // namespace hone
