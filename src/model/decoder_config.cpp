#include "model/decoder_config.h"

#include <cmath>
#include <optional>
#include <string>

#include "core/error.h"

namespace hone {
namespace {

// The object that describes the scaling of rotary positions; none: they are not scaled.
std::optional<ConfigReader> scaling_of(const ConfigReader& config) {
  if (config.has("rope_parameters")) return config.object("rope_parameters");
  if (config.has("rope_scaling")) return config.object("rope_scaling");
  return std::nullopt;
}

std::string type_of(const ConfigReader& scaling) { return scaling.text("rope_type", scaling.text("type", "default")); }

// As _compute_yarn_parameters of transformers, which takes 0 as absent.
void parse_yarn(const ConfigReader& config, const ConfigReader& scaling, RopeTableAttributes& rope) {
  rope.factor = scaling.number("factor");
  rope.original_max_position_embeddings =
      scaling.positive("original_max_position_embeddings", config.positive("max_position_embeddings", 2048));
  const auto or_else = [&](std::string_view key, double otherwise) {
    const double value = scaling.number(key, 0.0);
    return value != 0 ? value : otherwise;
  };
  rope.beta_fast = or_else("beta_fast", 32.0);
  rope.beta_slow = or_else("beta_slow", 1.0);
  rope.truncate = scaling.boolean("truncate", true);
  const double mscale = scaling.number("mscale", 0.0);
  const double mscale_all_dim = scaling.number("mscale_all_dim", 0.0);
  const double inferred = mscale != 0 && mscale_all_dim != 0
                              ? yarn_mscale(rope.factor, mscale) / yarn_mscale(rope.factor, mscale_all_dim)
                              : yarn_mscale(rope.factor, 1.0);
  rope.attention_factor = scaling.number("attention_factor", inferred);
}

}  // namespace

std::int64_t parse_layers(const ConfigReader& config) {
  const std::int64_t layers = config.positive("num_hidden_layers");
  if (layers <= kMostLayers) return layers;
  throw Error("config.json", text_of("num_hidden_layers ", layers, " is more than ", kMostLayers));
}

void check_parameter_count(const std::vector<WeightSpec>& specs) {
  constexpr double kMostParameters = 1e15;
  double parameters = 0;
  for (const WeightSpec& spec : specs) {
    double elements = 1;
    for (const std::int64_t size : spec.shape) elements *= static_cast<double>(size);
    parameters += elements;
  }
  if (parameters > kMostParameters) {
    throw Error("config.json", text_of("the model has ", parameters, " parameters; at most ", kMostParameters));
  }
}

RopeTableAttributes parse_rope(const ConfigReader& config, std::int64_t head_dim, double default_theta) {
  RopeTableAttributes rope;
  rope.head_dim = head_dim;
  rope.theta = config.number("rope_theta", default_theta);
  const std::optional<ConfigReader> scaling = scaling_of(config);
  if (!scaling) return rope;
  rope.theta = scaling->number("rope_theta", rope.theta);
  const std::string type = type_of(*scaling);
  if (type == "default") return rope;
  if (type != "llama3" && type != "yarn") {
    throw Error("config.json", text_of("rope scaling '", type, "' is not supported"),
                "hone supports default, llama3 and yarn");
  }
  rope.scaling = type;
  if (type == "yarn") {
    parse_yarn(config, *scaling, rope);
    return rope;
  }
  rope.factor = scaling->number("factor");
  rope.low_freq_factor = scaling->number("low_freq_factor");
  rope.high_freq_factor = scaling->number("high_freq_factor");
  rope.original_max_position_embeddings = scaling->positive("original_max_position_embeddings");
  return rope;
}

double yarn_mscale(double factor, double mscale) { return factor <= 1 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0; }

double parse_score_scale(const ConfigReader& config, std::int64_t head_dim) {
  const double scale = 1.0 / std::sqrt(static_cast<double>(head_dim));
  const std::optional<ConfigReader> scaling = scaling_of(config);
  if (!scaling || type_of(*scaling) == "default") return scale;
  const double mscale_all_dim = scaling->number("mscale_all_dim", 0.0);
  if (mscale_all_dim == 0) return scale;
  const double mscale = yarn_mscale(scaling->number("factor"), mscale_all_dim);
  return scale * mscale * mscale;
}

}  // namespace hone
