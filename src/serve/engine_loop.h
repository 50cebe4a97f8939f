// Runs the engine of a server: takes jobs from other threads between two steps and passes on what each step gives.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "engine/engine.h"
#include "serve/generation_job.h"
#include "serve/progress_queue.h"
#include "serve/server_metrics.h"

namespace hone {

enum class Admission : std::uint8_t { kAccepted, kFull, kClosing };

class EngineLoop {
 public:
  // At most `max_requests` requests may be waiting or running. `engine` and `metrics` must outlive the loop.
  EngineLoop(Engine& engine, ServerMetrics& metrics, std::int64_t max_requests);

  // Queues a job. Callable from any thread.
  [[nodiscard]] Admission submit(GenerationJob job);

  // Steps on the calling thread until stop() returns true, which is called between steps and at least every 100 ms.
  // Then accepts no more jobs, finishes those that it has within `shutdown_timeout`, and cancels the rest. What the
  // engine throws ends all jobs with status 500 and is thrown again.
  void run(const std::function<bool()>& stop, std::chrono::milliseconds shutdown_timeout);

 private:
  struct LiveJob {
    GenerationJob job;
    std::vector<RequestId> ids;
    std::size_t open = 0;  // requests that have not finished
  };
  struct LiveRequest {
    std::shared_ptr<LiveJob> job;
    std::size_t index = 0;      // in the job
    std::size_t delivered = 0;  // tokens of the completion that have been passed on
    std::chrono::steady_clock::time_point last{};
  };

  // Moves queued jobs into the engine. With nothing to do, waits for some.
  void take_jobs();
  void begin(GenerationJob job);
  void drop_unwanted();
  void step();
  void pass_on(const Engine::Update& update, StepFigures& figures);
  void close();
  void fail_all(int status, const char* message);

  Engine& engine_;
  ServerMetrics& metrics_;
  ProgressQueue queue_;
  const std::int64_t max_requests_;
  std::unordered_map<RequestId, LiveRequest> live_;
  std::vector<std::shared_ptr<LiveJob>> jobs_;

  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<GenerationJob> inbox_;  // this and the next two are guarded by mutex_
  std::int64_t requests_ = 0;        // waiting and running
  bool closing_ = false;
};

}  // namespace hone
