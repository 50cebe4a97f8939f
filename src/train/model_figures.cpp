#include "train/model_figures.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/error.h"
#include "core/json_value.h"
#include "ops/add/add.h"
#include "ops/fill/fill.h"
#include "ops/scale/scale.h"
#include "ops/weighted_sum/weighted_sum.h"

namespace hone {
namespace {

// Prefixes of output names, which give the reduction over runs; the name of the metric follows.
constexpr std::string_view kLoss = "model.loss.";
constexpr std::string_view kSum = "model.sum.";
constexpr std::string_view kMax = "model.max.";
constexpr std::string_view kMean = "model.mean.";
constexpr std::string_view kLoad = "model.load.";
constexpr std::array kKinds{kLoss, kSum, kMax, kMean, kLoad};

std::string output_name(std::string_view kind, const std::string& name) { return text_of(kind, name); }

void output_statistic(Program& program, const ModelStatistic& statistic) {
  const Type& type = statistic.value.type();
  const bool by_token = type.count() == Count::tokens;
  if (type.dtype != DType::kF32 || type.shape.size() != 1 || by_token != (statistic.kind == StatisticKind::kMean)) {
    throw Error(statistic.name, text_of("a statistic of the model is ", to_text(type), "; a mean must be f32[tokens], ",
                                        "a sum, a maximum or a load f32[n]"));
  }
  switch (statistic.kind) {
    case StatisticKind::kSum:
      return program.output(output_name(kSum, statistic.name), statistic.value);
    case StatisticKind::kMax:
      return program.output(output_name(kMax, statistic.name), statistic.value);
    case StatisticKind::kLoad:
      return program.output(output_name(kLoad, statistic.name), statistic.value);
    case StatisticKind::kMean:
      return program.output(output_name(kMean, statistic.name),
                            weighted_sum(statistic.value, fill(program, type, 1.0)));
  }
}

}  // namespace

Tensor with_model_losses(Tensor loss, std::span<const AddedLoss> added, Tensor weights) {
  for (const AddedLoss& each : added) {
    const Tensor sum = weighted_sum(each.term, weights);
    loss.program().output(output_name(kLoss, each.name), sum);
    loss = loss + scale(sum, each.coefficient);
  }
  return loss;
}

void output_statistics(Program& program, std::span<const ModelStatistic> statistics) {
  for (const ModelStatistic& each : statistics) output_statistic(program, each);
}

ModelFigures::ModelFigures(const Program& program) {
  for (const Output& output : program.outputs()) {
    declare(output.name, static_cast<std::size_t>(program.value(output.value).type.elements()));
  }
}

ModelFigures ModelFigures::of_last_stage(const Program& program, const Job& job) {
  ModelFigures own(program);
  if (job.pipeline_size() == 1) return own;
  Json outputs = Json::array();
  for (const Figure& figure : own.figures_) outputs.push_back({figure.output, figure.values.size()});
  const std::string of_last = job.peers()->gather(outputs.dump()).back();
  ModelFigures all;
  for (const Json& output : parse_json(of_last, "the last stage")) {
    all.declare(output.at(0).get<std::string>(), output.at(1).get<std::size_t>());
  }
  return all;
}

void ModelFigures::declare(const std::string& output, std::size_t entries) {
  for (const std::string_view kind : kKinds) {
    if (!output.starts_with(kind)) continue;
    figures_.push_back({output, kind, output.substr(kind.size()), std::vector<double>(entries, 0.0)});
  }
}

bool ModelFigures::has_losses() const {
  return std::ranges::any_of(figures_, [](const Figure& figure) { return figure.kind == kLoss; });
}

std::vector<float> ModelFigures::read_later(const Executable& executable) const {
  std::size_t entries = 0;
  for (const Figure& figure : figures_) entries += figure.values.size();
  std::vector<float> values(entries);
  std::size_t at = 0;
  for (const Figure& figure : figures_) {
    executable.get_later<float>(figure.output, std::span(values).subspan(at, figure.values.size()));
    at += figure.values.size();
  }
  return values;
}

void ModelFigures::add(std::span<const float> values, std::int64_t tokens) {
  std::size_t at = 0;
  for (Figure& figure : figures_) {
    for (double& entry : figure.values) {
      const auto value = static_cast<double>(values[at++]);
      entry = figure.kind != kMax ? entry + value : runs_ == 0 ? value : std::max(entry, value);
    }
  }
  tokens_ += static_cast<double>(tokens);
  ++runs_;
}

void ModelFigures::read(const Executable& executable, std::int64_t tokens) {
  if (figures_.empty()) return;
  const std::vector<float> values = read_later(executable);
  executable.device().synchronize();
  add(values, tokens);
}

void ModelFigures::add_ranks(const Job& job) {
  if (figures_.empty()) return;
  std::vector<double> sums{tokens_, static_cast<double>(runs_)};
  std::vector<double> maxima;
  for (const Figure& figure : figures_) {
    std::vector<double>& to = figure.kind == kMax ? maxima : sums;
    for (const double value : figure.values) {
      to.push_back(runs_ == 0 && figure.kind == kMax ? -std::numeric_limits<double>::infinity() : value);
    }
  }
  job.sum(sums);
  job.maximum(maxima);
  auto next_sum = sums.begin();
  auto next_maximum = maxima.begin();
  tokens_ = *next_sum++;
  runs_ = static_cast<std::int64_t>(*next_sum++);
  for (Figure& figure : figures_) {
    for (double& value : figure.values) value = figure.kind == kMax ? *next_maximum++ : *next_sum++;
  }
}

void ModelFigures::append_loads_to(MetricValues& values) const {
  const auto metric = [](const std::string& name, std::string_view suffix, bool by_layer) {
    const std::size_t slash = std::min(name.find('/'), name.size());
    return text_of(name.substr(0, slash), suffix, by_layer ? name.substr(slash) : "");
  };
  MetricValues by_layer;
  std::string name;
  double sum = 0;
  double most = 0;
  for (const Figure& figure : figures_) {
    if (figure.kind != kLoad) continue;
    const auto experts = static_cast<double>(figure.values.size());
    const double mean = std::accumulate(figure.values.begin(), figure.values.end(), 0.0) / experts;
    double squares = 0;
    for (const double load : figure.values) squares += (load - mean) * (load - mean);
    const double variation = mean > 0 ? std::sqrt(squares / experts) / mean : 0.0;
    name = figure.name;
    sum += variation;
    if (mean > 0) most = std::max(most, std::ranges::max(figure.values) / mean);
    by_layer.emplace_back(metric(name, "_cv", true), variation);
  }
  if (by_layer.empty() || runs_ == 0) return;
  values.emplace_back(metric(name, "_cv", false), sum / static_cast<double>(by_layer.size()));
  values.emplace_back(metric(name, "_max", false), most);
  values.insert(values.end(), by_layer.begin(), by_layer.end());
}

void ModelFigures::append_to(MetricValues& values, double divisor) const {
  append_loads_to(values);
  for (const Figure& figure : figures_) {
    if (runs_ == 0 || figure.kind == kLoad) continue;
    const double by = figure.kind == kLoss ? divisor : figure.kind == kMean ? std::max(tokens_, 1.0) : 1.0;
    const std::vector<double>& entries = figure.values;
    if (entries.size() == 1) {
      values.emplace_back(figure.name, entries[0] / by);
      continue;
    }
    const auto [least, most] = std::ranges::minmax(entries);
    const double mean = std::accumulate(entries.begin(), entries.end(), 0.0) / static_cast<double>(entries.size());
    values.emplace_back(figure.name + "/min", least / by);
    values.emplace_back(figure.name + "/mean", mean / by);
    values.emplace_back(figure.name + "/max", most / by);
  }
}

}  // namespace hone
