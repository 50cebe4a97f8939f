#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>

#include "backend/collective.h"
#include "backend/device_option.h"
#include "cli/bench/kind.h"
#include "cli/bench/results.h"
#include "cli/training_job.h"
#include "core/error.h"

namespace hone {
namespace {

struct CollectiveOptions {
  std::int64_t num_processes = 2;
  std::vector<std::int64_t> mebibytes = {16, 256, 1024};
  DeviceChoice device = DeviceChoice::kAutomatic;
  std::int64_t repeats = 10;
  std::string json;

  template <class Visitor>
  void fields(Visitor& v) {
    v.group("Collective operations");
    v("num_processes", num_processes, "Processes, started on this machine unless a launcher started them",
      within(2, 1024));
    v("mebibytes", mebibytes, "Sizes of the data of a process in MiB", within(1, 65536));
    v("device", device, kDeviceHelp);
    v("repeats", repeats, "Operations that are timed together", within(1, 10'000));
    v("json", json, "JSON file to write the results to");
  }
};

// Returns the seconds of one operation.
double seconds_of(const std::function<void()>& operation, Device& device, Collective& job, std::int64_t repeats) {
  constexpr int kWarmUp = 3;
  for (int i = 0; i < kWarmUp; ++i) operation();
  device.synchronize();
  job.check();
  job.barrier();
  const auto start = std::chrono::steady_clock::now();
  for (std::int64_t i = 0; i < repeats; ++i) operation();
  device.synchronize();
  job.check();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / static_cast<double>(repeats);
}

// Throws Defect unless the sum of f32 ones over all ranks is their number.
void check_sum(std::byte* data, std::size_t bytes, Device& device, Collective& job) {
  const std::vector<float> ones(bytes / sizeof(float), 1.0f);
  device.upload(data, ones.data(), bytes);
  job.all_reduce(data, DType::kF32, ones.size());
  std::vector<float> sums(ones.size());
  device.download(sums.data(), data, bytes);
  job.check();
  for (const float sum : sums) HONE_ASSERT(sum == static_cast<float>(job.size()), "the sum of ones is ", sum);
}

// Prints a line for one size: gigabytes per second that each process sends and receives, as NCCL's tests count them.
// Adds them to `rows`.
void measure(std::int64_t mebibytes, const CollectiveOptions& options, Device& device, Collective& job,
             std::vector<ResultRow>& rows) {
  const std::size_t bytes = static_cast<std::size_t>(mebibytes) << 20;
  const auto ranks = static_cast<std::size_t>(job.size());
  const Buffer buffer(device, bytes);
  std::byte* data = buffer.data();
  check_sum(data, std::min(bytes, std::size_t{1} << 20), device, job);
  device.fill(data, 0, bytes);
  std::vector<ByteRange> parts;
  parts.reserve(ranks);
  for (std::size_t r = 0; r < ranks; ++r) parts.push_back({bytes / 4 * r / ranks * 4, bytes / 4 * (r + 1) / ranks * 4});
  const double share = static_cast<double>(bytes) * static_cast<double>(ranks - 1) / static_cast<double>(ranks) * 1e-9;
  const std::array seconds{
      seconds_of([&] { job.all_reduce(data, DType::kF32, bytes / 4); }, device, job, options.repeats),
      seconds_of([&] { job.reduce_scatter(data, DType::kF32, parts); }, device, job, options.repeats),
      seconds_of([&] { job.all_gather(data, parts); }, device, job, options.repeats)};
  if (job.rank() != 0) return;
  std::printf("%8lld MiB  all_reduce %8.1f GB/s  reduce_scatter %8.1f GB/s  all_gather %8.1f GB/s\n",
              static_cast<long long>(mebibytes), 2 * share / seconds[0], share / seconds[1], share / seconds[2]);
  std::fflush(stdout);
  const std::string shape = text_of(job.size(), " processes, ", mebibytes, " MiB, f32");
  rows.push_back({"all_reduce", shape, 2 * share / seconds[0], "GB/s"});
  rows.push_back({"reduce_scatter", shape, share / seconds[1], "GB/s"});
  rows.push_back({"all_gather", shape, share / seconds[2], "GB/s"});
}

int collectives_bench(CollectiveOptions& options, const OptionInput&, const std::string& command) {
  const JobPlace place = job_place();
  LocalRanks ranks;
  if (!place.is_job()) {
    ranks = {.count = static_cast<int>(options.num_processes), .total = static_cast<int>(options.num_processes)};
  }
  constexpr std::int64_t kLimit = 120;
  return run_ranks(ranks, place, kLimit, [&](const Job& job) {
    Device& device = open_device(options.device);
    const std::unique_ptr<Collective> collective = make_collective(device, *job.peers());
    if (job.is_first()) {
      std::printf("%d processes, f32, %s; a sum counts 2 (n - 1) / n of its bytes, the others half of that\n",
                  job.size(), device.name().c_str());
    }
    std::vector<ResultRow> rows;
    for (const std::int64_t mebibytes : options.mebibytes) measure(mebibytes, options, device, *collective, rows);
    if (!options.json.empty() && job.is_first()) {
      write_results(options.json, rows, device.name(), command);
    }
    job.barrier();
    return 0;
  });
}

}  // namespace

BenchKind bench_collectives() {
  return bench_kind("collectives", "sums and copies between the devices of several processes", collectives_bench);
}

}  // namespace hone
