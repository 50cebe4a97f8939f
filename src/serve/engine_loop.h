// Runs the engine of a server: takes jobs from other threads between two steps and passes on what each step gives.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "engine/resident_model.h"
#include "serve/embedding_job.h"
#include "serve/generation_job.h"
#include "serve/progress_queue.h"
#include "serve/server_metrics.h"

namespace hone {

enum class Admission : std::uint8_t { kAccepted, kFull, kClosing };

// The fate of the requests under way before an action runs. Requests that have not begun wait until it is over.
enum class UnderWay : std::uint8_t {
  kAbort,  // they end with FinishReason::kAbort and what they have
  kWait,   // they finish first, as they began; if generation is paused, as kKeep
  kKeep,   // they stop after the step that is under way and continue afterwards
};

// An action on the engine's thread between two steps.
struct EngineAction {
  UnderWay under_way = UnderWay::kKeep;
  std::function<void(ResidentModel&)> act;
  // Called on the engine's thread when the action is over, with the exception that it threw, if any. Must not throw.
  std::function<void(const std::exception*)> done;
};

class EngineLoop {
 public:
  // At most `max_requests` requests may be waiting or running. `resident` and `metrics` must outlive the loop.
  // `adapters`: the model with slots for adapters, or null.
  EngineLoop(ResidentModel& resident, ServerMetrics& metrics, std::int64_t max_requests,
             const AdapterSlots* adapters = nullptr);

  // Queues a job. While generation is paused or the model is asleep, it waits. Callable from any thread.
  [[nodiscard]] Admission submit(GenerationJob job);
  // Queues a job of embeddings. One job at a time is computed, a step of it after each step of the engine; it begins
  // again if an action comes between. Callable from any thread.
  [[nodiscard]] Admission submit(EmbeddingJob job);
  // Queues an action; actions run in the order of their arrival. Callable from any thread.
  [[nodiscard]] Admission submit(EngineAction action);
  // Stops or continues generation. Called by actions only.
  void set_paused(bool paused) { paused_ = paused; }
  // Holds generation, in addition to a pause, while weights change over several actions. Until release(), `watch` is
  // called about ten times a second and may end what it watches. Called by actions and by `watch` only.
  void hold(std::function<void(ResidentModel&)> watch) { watch_ = std::move(watch); }
  void release() { watch_ = nullptr; }
  // Callable from any thread.
  [[nodiscard]] bool is_paused() const { return paused_; }
  [[nodiscard]] bool is_asleep() const { return asleep_; }

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
    std::size_t index = 0;                          // in the job
    std::size_t delivered = 0;                      // tokens of the completion that have been passed on
    std::chrono::steady_clock::time_point first{};  // when its first token was passed on
    std::chrono::steady_clock::time_point last{};
  };

  // Puts the adapter of a job into a slot, unless it has one: into a free slot, or in place of the adapter that no
  // request under way uses and that has not been used for the longest time. Returns false if all are in use.
  [[nodiscard]] bool place(const GenerationJob& job);
  [[nodiscard]] bool is_used(const ServedAdapter* adapter) const;
  // Waits for the steps that have been launched and passes on what they give.
  void settle();
  // Returns true if queued jobs may begin now.
  [[nodiscard]] bool may_begin() const { return !stands_still() && !resident_.is_asleep(); }
  // Returns true if generation is paused or held.
  [[nodiscard]] bool stands_still() const { return paused_ || watch_ != nullptr; }
  // Calls the watch of hold(), if there is one.
  void watch();
  // Moves queued jobs into the engine. With nothing to do, waits for some.
  void take_jobs();
  // Runs the actions whose time has come.
  void run_actions();
  void prepare(UnderWay under_way);
  void abort_requests();
  void finish(const EngineAction& action);
  void fail_requests();
  void begin(GenerationJob job);
  void drop_unwanted();
  void step();
  void pass_on(const Engine::Update& update, StepFigures& figures);
  // Returns the job of embeddings that is under way, or takes the next one. Returns null if there is none.
  [[nodiscard]] EmbeddingJob* take_embeddings();
  void step_embeddings();
  // Ends the job of embeddings that is under way, if there is one.
  void end_embeddings();
  void close();
  void fail_all(int status, const char* message);

  [[nodiscard]] Engine& engine() { return resident_.engine(); }

  ResidentModel& resident_;
  ServerMetrics& metrics_;
  ProgressQueue queue_;
  const std::int64_t max_requests_;
  std::unordered_map<RequestId, LiveRequest> live_;
  std::vector<std::shared_ptr<LiveJob>> jobs_;
  const AdapterSlots* adapters_;
  struct Slot {
    std::shared_ptr<const ServedAdapter> adapter;
    std::int64_t last_use = 0;  // a number that grows with each use
  };
  std::vector<Slot> slots_;
  std::int64_t uses_ = 0;
  std::function<void(ResidentModel&)> watch_;  // set while generation is held

  std::optional<EmbeddingJob> embedding_;  // under way
  bool embedding_begins_ = false;          // its inputs have not been given to the embedder

  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<GenerationJob> inbox_;  // this and the next four are guarded by mutex_
  std::deque<EmbeddingJob> embeddings_;
  std::deque<EngineAction> actions_;  // oldest first
  std::int64_t requests_ = 0;         // waiting and running
  bool closing_ = false;
  std::atomic<bool> paused_ = false;
  std::atomic<bool> asleep_ = false;
};

}  // namespace hone
