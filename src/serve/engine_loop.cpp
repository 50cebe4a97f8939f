#include "serve/engine_loop.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "serve/request_error.h"
#include "system/peers.h"

namespace hone {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kPollPause{100};
constexpr const char* kNoWeights = "the model has no whole weights until an update of them succeeds";

double seconds_between(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

}  // namespace

EngineLoop::EngineLoop(ResidentModel& resident, ServerMetrics& metrics, std::int64_t max_requests,
                       const AdapterSlots* adapters)
    : resident_(resident),
      metrics_(metrics),
      max_requests_(max_requests),
      adapters_(adapters),
      slots_(static_cast<std::size_t>(adapters == nullptr ? 0 : adapters->slots())) {}

Admission EngineLoop::submit(GenerationJob job) {
  const auto count = static_cast<std::int64_t>(job.requests.size());
  const std::lock_guard lock(mutex_);
  if (closing_) return Admission::kClosing;
  if (requests_ + count > max_requests_) return Admission::kFull;
  requests_ += count;
  inbox_.push_back(std::move(job));
  arrived_.notify_one();
  return Admission::kAccepted;
}

Admission EngineLoop::submit(EmbeddingJob job) {
  const std::int64_t count = std::ssize(job.inputs);
  const std::lock_guard lock(mutex_);
  if (closing_) return Admission::kClosing;
  if (requests_ + count > max_requests_) return Admission::kFull;
  requests_ += count;
  embeddings_.push_back(std::move(job));
  arrived_.notify_one();
  return Admission::kAccepted;
}

Admission EngineLoop::submit(EngineAction action) {
  const std::lock_guard lock(mutex_);
  if (closing_) return Admission::kClosing;
  actions_.push_back(std::move(action));
  arrived_.notify_one();
  return Admission::kAccepted;
}

void EngineLoop::run(const std::function<bool()>& stop, std::chrono::milliseconds shutdown_timeout) {
  try {
    while (!stop()) {
      resident_.check_ranks();
      take_jobs();
      watch();
      run_actions();
      step();
    }
    close();
    if (std::exchange(watch_, nullptr)) fail_requests();  // some weights may be old and some new
    paused_ = false;
    const auto deadline = Clock::now() + shutdown_timeout;
    while ((!jobs_.empty() || embedding_) && Clock::now() < deadline) step();
    for (const auto& [id, request] : live_) engine().cancel(id);
    fail_all(503, "the server shuts down");
  } catch (const std::exception&) {
    close();
    fail_all(500, "the engine has failed");
    throw;
  }
}

void EngineLoop::take_jobs() {
  std::deque<GenerationJob> jobs;
  {
    std::unique_lock lock(mutex_);
    const auto has_arrived = [&] {
      return !actions_.empty() || (may_begin() && (!inbox_.empty() || !embeddings_.empty()));
    };
    const bool idle = live_.empty() && (!embedding_ || !may_begin());
    if (idle || stands_still()) arrived_.wait_for(lock, kPollPause, has_arrived);
    if (!actions_.empty() || !may_begin()) return;  // jobs that have not begun wait for actions
    jobs.swap(inbox_);
  }
  while (!jobs.empty() && place(jobs.front())) {
    begin(std::move(jobs.front()));
    jobs.pop_front();
  }
  if (jobs.empty()) return;
  const std::lock_guard lock(mutex_);
  inbox_.insert(inbox_.begin(), std::move_iterator(jobs.begin()), std::move_iterator(jobs.end()));
}

void EngineLoop::watch() {
  if (!watch_) return;
  const auto watch = watch_;  // which may release itself
  watch(resident_);
  if (!resident_.has_whole_weights()) fail_requests();
}

bool EngineLoop::is_used(const ServedAdapter* adapter) const {
  return std::ranges::any_of(jobs_, [&](const auto& live) { return live->job.adapter.get() == adapter; });
}

bool EngineLoop::place(const GenerationJob& job) {
  if (job.adapter == nullptr || !resident_.has_whole_weights()) return true;
  auto slot = std::ranges::find(slots_, job.adapter, &Slot::adapter);
  if (slot == slots_.end()) {
    slot = std::ranges::min_element(slots_, {}, [&](const Slot& one) {
      const bool used = one.adapter != nullptr && is_used(one.adapter.get());
      return std::pair(used, one.adapter == nullptr ? 0 : one.last_use);
    });
    HONE_ASSERT(slot != slots_.end(), "a server without slots has a request with an adapter");
    if (slot->adapter != nullptr && is_used(slot->adapter.get())) return false;
    settle();
    adapters_->place(job.adapter->image, slot - slots_.begin(), resident_.weights());
    slot->adapter = job.adapter;
  }
  slot->last_use = ++uses_;
  return true;
}

void EngineLoop::run_actions() {
  while (true) {
    EngineAction action;
    {
      const std::lock_guard lock(mutex_);
      if (actions_.empty()) return;
      const bool busy = !live_.empty() || embedding_;
      if (actions_.front().under_way == UnderWay::kWait && busy && !stands_still()) return;
      action = std::move(actions_.front());
      actions_.pop_front();
    }
    prepare(action.under_way);
    finish(action);
  }
}

void EngineLoop::settle() {
  StepFigures figures;
  engine().settle([&](const Engine::Update& update) { pass_on(update, figures); });
  std::erase_if(jobs_, [](const auto& live) { return live->open == 0; });
  metrics_.add_step(figures);
}

void EngineLoop::prepare(UnderWay under_way) {
  if (resident_.is_asleep()) return;
  settle();
  if (under_way == UnderWay::kAbort) abort_requests();
  std::erase_if(jobs_, [](const auto& live) { return live->open == 0; });
  metrics_.set_engine(engine().statistics());
  queue_.flush();
}

void EngineLoop::abort_requests() {
  StepFigures figures;
  std::vector<RequestId> ids;
  ids.reserve(live_.size());
  for (const auto& [id, request] : live_) ids.push_back(id);
  for (const RequestId id : ids) {
    engine().cancel(id);
    pass_on({.id = id, .text = {}, .finish_reason = FinishReason::kAbort}, figures);
  }
  figures.first_token_seconds.clear();  // an abort is no token
  figures.token_seconds.clear();
  metrics_.add_step(figures);
}

void EngineLoop::finish(const EngineAction& action) {
  try {
    embedding_begins_ = true;  // the action may change weights
    action.act(resident_);
    if (resident_.is_asleep()) std::ranges::fill(slots_, Slot());  // sleep may forget weights
    asleep_ = resident_.is_asleep();
    if (!resident_.has_whole_weights()) fail_requests();
    action.done(nullptr);
  } catch (const JobFailure& error) {
    action.done(&error);
    throw;
  } catch (const std::exception& error) {
    asleep_ = resident_.is_asleep();
    if (!resident_.has_whole_weights()) fail_requests();
    action.done(&error);
  }
}

// Ends the requests under way, which would continue with weights of which some are old and some are new.
void EngineLoop::fail_requests() {
  for (const auto& [id, request] : live_) {
    engine().cancel(id);
    (void)engine().take(id);
    metrics_.add_end(FinishReason::kAbort);
  }
  const auto count = static_cast<std::int64_t>(live_.size());
  fail_all(503, kNoWeights);
  const std::lock_guard lock(mutex_);
  requests_ -= count;
}

void EngineLoop::begin(GenerationJob job) {
  if (!resident_.has_whole_weights()) {
    const std::int64_t count = std::ssize(job.requests);
    queue_.push_failure(std::move(job.sink), 503, kNoWeights);
    queue_.flush();
    const std::lock_guard lock(mutex_);
    requests_ -= count;
    return;
  }
  if (job.adapter != nullptr) {
    const auto slot = std::ranges::find(slots_, job.adapter, &Slot::adapter);
    for (Request& request : job.requests) request.adapter = {.slot = slot - slots_.begin(), .id = job.adapter->id};
  }
  auto live = std::make_shared<LiveJob>(LiveJob{.job = std::move(job), .ids = {}, .open = 0});
  try {
    for (Request& request : live->job.requests) {
      metrics_.add_prompt(std::ssize(request.prompt), request.sampling.max_tokens);
      const RequestId id = engine().add(std::move(request));
      live->ids.push_back(id);
      live_.emplace(id, LiveRequest{.job = live, .index = live->open++, .delivered = 0, .first = {}, .last = {}});
    }
  } catch (const Error& error) {
    queue_.push_failure(live->job.sink, 400, error.what());
    queue_.flush();
    for (const RequestId id : live->ids) {
      engine().cancel(id);
      (void)engine().take(id);
      live_.erase(id);
    }
    const std::lock_guard lock(mutex_);
    requests_ -= std::ssize(live->job.requests);
    return;
  }
  jobs_.push_back(std::move(live));
}

void EngineLoop::drop_unwanted() {
  const std::size_t before = live_.size();
  for (const auto& live : jobs_) {
    if (live->job.sink->wanted()) continue;
    for (const RequestId id : live->ids) {
      const auto found = live_.find(id);
      if (found == live_.end()) continue;
      live_.erase(found);
      engine().cancel(id);
      (void)engine().take(id);
      metrics_.add_end(FinishReason::kAbort);
      --live->open;
      const std::lock_guard lock(mutex_);
      --requests_;
    }
  }
  if (live_.size() == before) return;
  std::erase_if(jobs_, [](const auto& live) { return live->open == 0; });
  metrics_.set_engine(engine().statistics());
}

EmbeddingJob* EngineLoop::take_embeddings() {
  if (embedding_ && !embedding_->sink->wanted()) {
    resident_.settle();
    end_embeddings();
  }
  if (embedding_) return &*embedding_;
  const std::lock_guard lock(mutex_);
  if (embeddings_.empty() || !actions_.empty()) return nullptr;  // a job that has not begun waits for actions
  EmbeddingJob& next = embedding_.emplace(std::move(embeddings_.front()));
  embeddings_.pop_front();
  embedding_begins_ = true;
  return &next;
}

void EngineLoop::end_embeddings() {
  const std::optional<EmbeddingJob> over = std::exchange(embedding_, std::nullopt);
  if (!over) return;
  const std::lock_guard lock(mutex_);
  requests_ -= std::ssize(over->inputs);
}

void EngineLoop::step_embeddings() {
  const EmbeddingJob* const job = take_embeddings();
  if (job == nullptr) return;
  if (!resident_.has_whole_weights()) {
    queue_.push_failure(job->sink, 503, kNoWeights);
    queue_.flush();
    return end_embeddings();
  }
  if (std::exchange(embedding_begins_, false)) resident_.embedder().start(job->inputs);
  if (resident_.embedder().step()) return;
  std::int64_t tokens = 0;
  for (const auto& input : job->inputs) tokens += std::ssize(input);
  metrics_.add_embeddings(tokens);
  job->sink->set(resident_.embedder().take());
  GenerationProgress end;
  end.finish_reason = FinishReason::kStop;
  queue_.push(job->sink, std::move(end));
  queue_.flush();
  end_embeddings();
}

void EngineLoop::step() {
  drop_unwanted();
  if (stands_still() || resident_.is_asleep()) return;
  step_embeddings();
  if (!engine().has_work()) return;
  StepFigures figures;
  for (const Engine::Update& update : engine().step()) pass_on(update, figures);
  std::erase_if(jobs_, [](const auto& live) { return live->open == 0; });
  metrics_.add_step(figures);
  metrics_.set_engine(engine().statistics());
  queue_.flush();  // after the metrics, so that they count an answer that has been sent
}

void EngineLoop::pass_on(const Engine::Update& update, StepFigures& figures) {
  const auto found = live_.find(update.id);
  if (found == live_.end()) return;
  LiveRequest& request = found->second;
  const Completion& completion = engine().completion(update.id);
  const auto begin = static_cast<std::ptrdiff_t>(std::exchange(request.delivered, completion.tokens.size()));
  GenerationProgress progress{.index = request.index,
                              .text = std::string(update.text),
                              .tokens = {completion.tokens.begin() + begin, completion.tokens.end()},
                              .logps = {completion.logps.begin() + begin, completion.logps.end()},
                              .top_logprobs = {},
                              .finish_reason = update.finish_reason};
  if (!completion.top_logprobs.empty())
    progress.top_logprobs = {completion.top_logprobs.begin() + begin, completion.top_logprobs.end()};
  if (begin == 0) {
    progress.prompt_logps = completion.prompt_logps;
    progress.prompt_top_logprobs = completion.prompt_top_logprobs;
  }
  const Clock::time_point now = Clock::now();
  const Clock::time_point arrived = request.job->job.arrived;
  if (begin == 0) request.first = now;
  if (begin == 0)
    figures.first_token_seconds.push_back(seconds_between(arrived, now));
  else
    figures.token_seconds.push_back(seconds_between(request.last, now));
  request.last = now;
  queue_.push(request.job->job.sink, std::move(progress));
  if (update.finish_reason == FinishReason::kNone) return;
  // A request that was aborted before its first step has been in the queue only.
  const Clock::time_point launched = engine().started(update.id);
  const Clock::time_point started = launched == Clock::time_point{} ? now : launched;
  figures.ends.push_back({.seconds = seconds_between(arrived, now),
                          .queue = seconds_between(arrived, started),
                          .prefill = seconds_between(started, request.first),
                          .decode = seconds_between(request.first, now),
                          .tokens = std::ssize(completion.tokens),
                          .reason = update.finish_reason});
  (void)engine().take(update.id);
  --request.job->open;
  live_.erase(found);
  const std::lock_guard lock(mutex_);
  --requests_;
}

void EngineLoop::close() {
  std::deque<GenerationJob> jobs;
  std::deque<EngineAction> actions;
  std::deque<EmbeddingJob> embeddings;
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
    jobs.swap(inbox_);
    actions.swap(actions_);
    embeddings.swap(embeddings_);
  }
  const RequestError closing({}, "the server shuts down", {}, 503);
  for (const EngineAction& action : actions) action.done(&closing);
  for (GenerationJob& job : jobs) {
    queue_.push_failure(std::move(job.sink), 503, "the server shuts down");
  }
  for (EmbeddingJob& job : embeddings) queue_.push_failure(std::move(job.sink), 503, "the server shuts down");
  queue_.flush();
}

void EngineLoop::fail_all(int status, const char* message) {
  if (embedding_) {
    queue_.push_failure(embedding_->sink, status, message);
    end_embeddings();
  }
  for (const auto& live : jobs_) queue_.push_failure(live->job.sink, status, message);
  queue_.flush();
  live_.clear();
  jobs_.clear();
}

}  // namespace hone
