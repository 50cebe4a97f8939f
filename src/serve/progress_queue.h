// Calls the sinks of jobs on a dedicated thread, so that the engine's thread does not wait while answers are
// formatted.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "serve/generation_job.h"

namespace hone {

class ProgressQueue {
 public:
  ProgressQueue();
  // Delivers what is queued and ends the thread.
  ~ProgressQueue();
  ProgressQueue(const ProgressQueue&) = delete;
  ProgressQueue& operator=(const ProgressQueue&) = delete;

  // Collects progress; the thread sees it after the next flush().
  void push(std::shared_ptr<GenerationSink> sink, GenerationProgress progress);
  void push_failure(std::shared_ptr<GenerationSink> sink, int status, std::string message);
  void flush();

 private:
  struct Item {
    std::shared_ptr<GenerationSink> sink;
    GenerationProgress progress;
    int status = 0;  // of a failure; 0: none
    std::string message;
  };

  void deliver();

  std::vector<Item> collected_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Item> items_;  // guarded by mutex_
  bool ended_ = false;       // guarded by mutex_
  std::thread thread_;
};

}  // namespace hone
