#include "cli/profile/counted_reason.h"

#include <array>
#include <cmath>
#include <string_view>

#include "core/error.h"
#include "core/json_value.h"
#include "core/printed.h"

namespace hone {
namespace {

// A figure that explains time. Its keys are summed: bytes read and written.
struct Explanation {
  std::array<const char*, 2> keys;
  bool per_call;      // divided by the calls
  bool more_is_slow;  // more of it makes the operation slower
  const char* text;   // after "more" or "fewer", or with `lower` after "higher" or "lower"
  bool lower;
  double scale;
};
constexpr std::array<Explanation, 8> kExplanations{{
    {{"instructions", ""}, true, true, "M instructions a call", false, 1e-6},
    {{"instructions_per_cycle", ""}, false, false, "instructions per cycle", false, 1},
    {{"ghz", ""}, false, false, "clock rate in GHz", true, 1},
    {{"cores", ""}, false, false, "cores", false, 1},
    {{"dram_read_bytes", "dram_written_bytes"}, true, true, "MB of DRAM a call", false, 1e-6},
    {{"gpu_instructions", ""}, true, true, "M instructions of warps a call", false, 1e-6},
    {{"l2_hit_rate", ""}, false, false, "share of L2 hits", true, 1},
    {{"occupancy", ""}, false, false, "occupancy", true, 1},
}};

// Returns the figure of a row; 0 if it has none.
double figure_of(const Json& row, const Explanation& each) {
  double sum = 0;
  for (const char* key : each.keys) {
    if (const auto found = row.find(key); found != row.end() && found->is_number()) sum += found->get<double>();
  }
  if (!each.per_call) return sum;
  const auto runs = row.find("runs");
  const bool has_runs = runs != row.end() && runs->is_number() && runs->get<double>() > 0;
  return has_runs ? sum / runs->get<double>() : 0;
}

}  // namespace

std::string counted_reason(const Json& before, const Json& after, double work, bool slower) {
  if (!before.is_object() || !after.is_object()) return "";
  double most = kLeastCountedChange;
  std::string reason;
  for (const Explanation& each : kExplanations) {
    const double was = figure_of(before, each);
    const double is = figure_of(after, each);
    if (was <= 0 || is <= 0) continue;
    const double effect = std::log(is / was / (each.per_call ? work : 1)) * (each.more_is_slow == slower ? 1 : -1);
    if (effect <= most) continue;
    most = effect;
    const bool more = is > was;
    reason = printed("%s %s: %.4g, %s from %.4g", each.lower ? (more ? "higher" : "lower") : (more ? "more" : "fewer"),
                     each.text, is * each.scale, more ? "up" : "down", was * each.scale);
  }
  return reason;
}

}  // namespace hone
