#include "rl/sample_json.h"

#include "core/json_value.h"

namespace hone {

Json to_json(std::span<const PolicySample> samples) {
  Json json = Json::array();
  for (const PolicySample& sample : samples) {
    json.push_back({{"prompt", sample.prompt},
                    {"completion", sample.completion},
                    {"logps", sample.logps},
                    {"importance", sample.importance},
                    {"ref_logps", sample.ref_logps},
                    {"truncated", sample.truncated},
                    {"advantage", sample.advantage}});
  }
  return json;
}

std::vector<PolicySample> samples_from(const Json& json) {
  std::vector<PolicySample> samples;
  for (const Json& fields : json) {
    PolicySample& sample = samples.emplace_back();
    sample.prompt = fields.at("prompt").get<std::vector<TokenId>>();
    sample.completion = fields.at("completion").get<std::vector<TokenId>>();
    sample.logps = fields.at("logps").get<std::vector<float>>();
    sample.importance = fields.value("importance", std::vector<float>());
    sample.ref_logps = fields.at("ref_logps").get<std::vector<float>>();
    sample.truncated = fields.at("truncated").get<bool>();
    sample.advantage = fields.at("advantage").get<double>();
  }
  return samples;
}

}  // namespace hone
