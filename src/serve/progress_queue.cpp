#include "serve/progress_queue.h"

#include <iterator>

#include "core/error.h"
#include "core/log.h"

namespace hone {

ProgressQueue::ProgressQueue() : thread_([this] { deliver(); }) {}

ProgressQueue::~ProgressQueue() {
  flush();
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void ProgressQueue::push(std::shared_ptr<GenerationSink> sink, GenerationProgress progress) {
  collected_.push_back({.sink = std::move(sink), .progress = std::move(progress), .status = 0, .message = {}});
}

void ProgressQueue::push_failure(std::shared_ptr<GenerationSink> sink, int status, std::string message) {
  collected_.push_back({.sink = std::move(sink), .progress = {}, .status = status, .message = std::move(message)});
}

void ProgressQueue::flush() {
  if (collected_.empty()) return;
  {
    const std::lock_guard lock(mutex_);
    items_.insert(items_.end(), std::make_move_iterator(collected_.begin()), std::make_move_iterator(collected_.end()));
  }
  collected_.clear();
  changed_.notify_one();
}

void ProgressQueue::deliver() {
  for (;;) {
    std::vector<Item> items;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return ended_ || !items_.empty(); });
      if (items_.empty()) return;
      items.swap(items_);
    }
    for (Item& item : items) {
      try {
        if (item.status == 0)
          item.sink->add(std::move(item.progress));
        else
          item.sink->fail(item.status, item.message);
      } catch (const std::exception& error) {
        log_warning(text_of("an answer could not be written: ", error.what()));
        item.sink->fail(500, "the server has failed to write this answer");
      }
    }
  }
}

}  // namespace hone
