#include "generate/collect.h"

#include <algorithm>
#include <optional>
#include <unordered_set>

#include "core/error.h"
#include "core/files.h"
#include "core/interrupt.h"
#include "core/json_value.h"
#include "reward/registry.h"
#include "reward/tags.h"
#include "rl/reward_options.h"
#include "rl/reward_trial.h"

namespace hone {
namespace {

constexpr std::size_t kPromptsAtOnce = 64;  // prompts per batch of rewards

using Scores = std::vector<std::optional<double>>;

// Prompt with its completions and their scores.
struct Group {
  const GeneratePrompt* prompt = nullptr;
  Json columns;
  Json question;
  std::vector<std::string> texts;    // [completions]
  std::vector<std::int64_t> tokens;  // [completions]
  std::vector<bool> ended;           // [completions]
  std::vector<Scores> scores;        // [rewards][completions]
  Scores totals;                     // [completions]
  Scores format;                     // [completions]; empty unless require_format
  std::optional<double> pass_rate;   // mean of the totals
};

struct Judges {
  std::vector<Reward> rewards;
  std::optional<Reward> format;
};

Judges make_judges(const GenerateOptions& options, bool opens_thoughts) {
  Judges judges;
  judges.rewards = rewards_of(options, opens_thoughts, {options.dataset_name, output_folder(options)});
  if (options.require_format) {
    judges.format = reward_registry().make("format", reward_options(options, opens_thoughts));
  }
  return judges;
}

Group read_group(const GeneratePrompt& prompt, const Json& kept) {
  Group group{.prompt = &prompt, .columns = parse_json(prompt.row, "row"), .question = question_of(prompt)};
  for (const Json& text : kept.at("generations")) group.texts.push_back(text.get<std::string>());
  for (const Json& count : kept.at("completion_tokens")) group.tokens.push_back(count.get<std::int64_t>());
  for (const Json& reason : kept.at("finish_reasons")) group.ended.push_back(reason == "stop");
  return group;
}

// Returns the weighted sum of the scores of each completion. Missing scores are skipped; a completion without any score
// has no total.
Scores totals_of(const Group& group, std::span<const double> weights) {
  Scores totals(group.texts.size());
  for (std::size_t r = 0; r < group.scores.size(); ++r) {
    const double weight = weights.empty() ? 1.0 : weights[r];
    for (std::size_t i = 0; i < totals.size(); ++i) {
      const std::optional<double>& score = group.scores[r][i];
      if (score) totals[i] = totals[i].value_or(0) + weight * *score;
    }
  }
  return totals;
}

std::optional<double> mean_of(const Scores& values) {
  double sum = 0;
  double count = 0;
  for (const std::optional<double>& value : values) {
    if (!value) continue;
    sum += *value;
    count += 1;
  }
  return count > 0 ? std::optional(sum / count) : std::nullopt;
}

void score(std::span<Group> groups, const Judges& judges, std::span<const double> weights) {
  std::vector<RewardInput> inputs;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const Group& group = groups[g];
    for (std::size_t i = 0; i < group.texts.size(); ++i) {
      inputs.push_back({.completion = group.texts[i],
                        .row = &group.columns,
                        .group = static_cast<std::int64_t>(g),
                        .token_count = group.tokens[i],
                        .ended = group.ended[i],
                        .prompt = &group.question});
    }
  }
  const auto deal = [&](const RewardScores& scores, const auto& give) {
    std::size_t at = 0;
    for (Group& group : groups) {
      const std::span<const std::optional<double>> part = std::span(scores).subspan(at, group.texts.size());
      give(group, Scores(part.begin(), part.end()));
      at += group.texts.size();
    }
  };
  for (const Reward& reward : judges.rewards) {
    deal(reward.score(inputs), [](Group& group, Scores scores) { group.scores.push_back(std::move(scores)); });
  }
  if (judges.format) {
    deal(judges.format->score(inputs), [](Group& group, Scores scores) { group.format = std::move(scores); });
  }
  for (Group& group : groups) {
    group.totals = totals_of(group, weights);
    group.pass_rate = mean_of(group.totals);
  }
}

Json json_of(const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); }

Json json_of(const Scores& scores) {
  Json list = Json::array();
  for (const std::optional<double>& value : scores) list.push_back(json_of(value));
  return list;
}

class Collector {
 public:
  Collector(const GenerateOptions& options, const Judges& judges, GenerateCounts& counts)
      : options_(options), judges_(judges), counts_(counts) {}

  // Returns the lines for one prompt, each with its newline.
  std::string lines(const Group& group) {
    counts_.completions += std::ssize(group.texts);
    if (!passes_rate(group)) {
      ++counts_.pass_rate;
      return {};
    }
    std::vector<std::size_t> kept;
    for (std::size_t i = 0; i < group.texts.size(); ++i) {
      if (passes(group, i)) kept.push_back(i);
    }
    return options_.output_form == DataForm::kRows ? row_line(group, kept) : conversation_lines(group, kept);
  }

 private:
  [[nodiscard]] bool passes_rate(const Group& group) const {
    if (!options_.pass_rate_min && !options_.pass_rate_max) return true;
    return group.pass_rate && *group.pass_rate > options_.pass_rate_min.value_or(0.1) &&
           *group.pass_rate < options_.pass_rate_max.value_or(0.9);
  }

  bool passes(const Group& group, std::size_t i) {
    const std::int64_t tokens = group.tokens[i];
    if ((options_.require_end && !group.ended[i]) || tokens < options_.min_completion_tokens ||
        (options_.max_completion_tokens && tokens > *options_.max_completion_tokens)) {
      ++counts_.length;
      return false;
    }
    if (judges_.format && group.format[i] != 1.0) {
      ++counts_.format;
      return false;
    }
    const bool by_default = options_.output_form == DataForm::kConversations && !judges_.rewards.empty();
    if (options_.min_reward || by_default) {
      const std::optional<double>& total = group.totals[i];
      if (!total || *total < options_.min_reward.value_or(1.0)) {
        ++counts_.reward;
        return false;
      }
    }
    return true;
  }

  // Returns the line of a prompt with all its completions, because the pass rate refers to all of them. A prompt
  // without a completion that passes is dropped.
  std::string row_line(const Group& group, const std::vector<std::size_t>& kept) {
    if (kept.empty()) return {};
    Json row = group.columns;
    row["generations"] = group.texts;
    row["completion_tokens"] = group.tokens;
    for (std::size_t r = 0; r < judges_.rewards.size(); ++r) {
      row["rewards"][judges_.rewards[r].name] = json_of(group.scores[r]);
    }
    row["pass_rate"] = json_of(group.pass_rate);
    row["prompt_hash"] = group.prompt->key;
    return line_of(row);
  }

  std::string conversation_lines(const Group& group, const std::vector<std::size_t>& kept) {
    std::string lines;
    std::unordered_set<std::string_view> seen;
    for (const std::size_t i : kept) {
      const bool enough = options_.max_per_prompt > 0 && std::ssize(seen) >= options_.max_per_prompt;
      if (enough || !seen.insert(group.texts[i]).second) {
        ++counts_.repeated;
        continue;
      }
      Json row = group.columns;
      for (const char* column : {"prompt", "completion", "messages", "conversations", "text"}) row.erase(column);
      row["messages"] = parse_json(group.prompt->messages, "messages");
      if (row["messages"].back()["role"] == "assistant") row["messages"].erase(row["messages"].size() - 1);
      const bool opens = group.prompt->opens_thoughts && !group.texts[i].starts_with(kThinkOpening);
      row["messages"].push_back(
          {{"role", "assistant"}, {"content", (opens ? std::string(kThinkOpening) : "") + group.texts[i]}});
      if (!judges_.rewards.empty()) row["reward"] = json_of(group.totals[i]);
      row["prompt_hash"] = group.prompt->key;
      lines += line_of(row);
    }
    return lines;
  }

  std::string line_of(const Json& row) {
    ++counts_.kept;
    return row.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  }

  const GenerateOptions& options_;
  const Judges& judges_;
  GenerateCounts& counts_;
};

}  // namespace

void try_rewards(const GenerateOptions& options, const GeneratePrompt& prompt) {
  const Json row = parse_json(prompt.row, "row");
  const Json question = question_of(prompt);
  hone::try_rewards(make_judges(options, prompt.opens_thoughts).rewards,
                    {.row = row, .question = question, .completions = options.num_generations});
}

void collect_data(const GenerateOptions& options, std::span<const GeneratePrompt> prompts, const Journal& journal,
                  const std::filesystem::path& path, GenerateCounts& counts) {
  const Judges judges = make_judges(options, prompts.front().opens_thoughts);
  Collector collector(options, judges, counts);
  struct Piece {
    double pass_rate = 0;
    std::string lines;
  };
  std::vector<Piece> pieces;
  for (std::size_t begin = 0; begin < prompts.size(); begin += kPromptsAtOnce) {
    throw_if_interrupted();
    std::vector<Group> groups;
    for (std::size_t i = begin; i < std::min(begin + kPromptsAtOnce, prompts.size()); ++i) {
      groups.push_back(read_group(prompts[i], journal.read(prompts[i].key)));
    }
    score(groups, judges, options.reward_weights);
    for (const Group& group : groups) {
      std::string lines = collector.lines(group);
      if (!lines.empty()) pieces.push_back({group.pass_rate.value_or(0), std::move(lines)});
    }
  }
  if (counts.kept == 0) {
    throw Error("filters",
                text_of("none of ", counts.completions, " completions is left; dropped: ", counts.pass_rate,
                        " prompts by pass rate; completions: ", counts.length, " by length or missing end, ",
                        counts.format, " by format, ", counts.reward, " by reward"),
                "relax a filter and run again: the generations are kept");
  }
  if (options.easy_first) std::ranges::stable_sort(pieces, std::ranges::greater(), &Piece::pass_rate);
  FileWriter file(path);
  for (const Piece& piece : pieces) file.write(piece.lines);
  file.commit();
}

}  // namespace hone
