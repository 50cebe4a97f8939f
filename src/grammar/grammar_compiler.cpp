#include <algorithm>
#include <exception>
#include <utility>

#include "core/error.h"
#include "grammar/grammar.h"

namespace hone {
namespace {

constexpr std::size_t kMostCompilations = 2;

}  // namespace

GrammarCompiler::~GrammarCompiler() {
  for (auto& [id, thread] : threads_) thread.join();
}

std::shared_ptr<const Grammar> GrammarCompiler::compile(const GrammarSpec& spec) {
  const auto deadline = std::chrono::steady_clock::now() + limits_.wait;
  const auto refuse = [&](std::string_view what) {
    throw Error("", text_of(what, " longer than ", std::chrono::duration<double>(limits_.wait).count(), " s"),
                "make it simpler, or try again later");
  };
  std::unique_lock lock(mutex_);
  if (const auto found = places_.find(spec); found != places_.end()) {
    entries_.splice(entries_.begin(), entries_, found->second);
    return entries_.front().grammar;
  }
  const auto may_begin = [&] { return under_way_.contains(spec) || under_way_.size() < kMostCompilations; };
  if (!ended_.wait_until(lock, deadline, may_begin)) refuse("waits for the compilation of others");
  const Result result = result_of(spec, lock);
  lock.unlock();
  if (result.wait_until(deadline) == std::future_status::timeout) refuse("takes");
  return result.get();
}

GrammarCompiler::Result GrammarCompiler::result_of(const GrammarSpec& spec, std::unique_lock<std::mutex>&) {
  for (const std::thread::id id : std::exchange(idle_, {})) {
    threads_.at(id).join();
    threads_.erase(id);
  }
  if (const auto found = under_way_.find(spec); found != under_way_.end()) return found->second;
  std::promise<std::shared_ptr<const Grammar>> promise;
  const Result result = promise.get_future().share();
  under_way_.emplace(spec, result);
  std::thread thread([this, spec, promise = std::move(promise)]() mutable { run(spec, std::move(promise)); });
  const std::thread::id id = thread.get_id();
  threads_.emplace(id, std::move(thread));
  return result;
}

void GrammarCompiler::run(const GrammarSpec& spec, std::promise<std::shared_ptr<const Grammar>> promise) {
  std::shared_ptr<const Grammar> grammar;
  std::exception_ptr problem;
  try {
    grammar = compile_now(spec);
  } catch (...) {
    problem = std::current_exception();
  }
  const std::lock_guard lock(mutex_);
  if (problem) {
    promise.set_exception(problem);
  } else {
    keep(spec, grammar);
    promise.set_value(grammar);
  }
  under_way_.erase(spec);
  idle_.push_back(std::this_thread::get_id());
  ended_.notify_all();
}

void GrammarCompiler::keep(const GrammarSpec& spec, const std::shared_ptr<const Grammar>& grammar) {
  if (places_.contains(spec)) return;
  entries_.push_front({spec, grammar});
  places_.emplace(spec, entries_.begin());
  bytes_ += grammar->bytes();
  while (bytes_ > limits_.cache_bytes && entries_.size() > 1) {
    bytes_ -= entries_.back().grammar->bytes();
    places_.erase(entries_.back().spec);
    entries_.pop_back();
  }
}

}  // namespace hone
