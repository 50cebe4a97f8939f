// Communicators between the threads of a process, in place of NCCL's.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "backend/broadcast_rank.h"
#include "core/error.h"

namespace hone::test {

// Broadcasts between all ranks that use one object. Each call waits until all ranks of its communicator have made it,
// or it is given up; then the others wait on, as NCCL's do.
class FakeNccl {
 public:
  // Every rank has its memory on this device.
  explicit FakeNccl(Device& device) : device_(device) {}

  [[nodiscard]] BroadcastBackend backend() {
    return {.make_id =
                [this] {
                  const std::lock_guard lock(mutex_);
                  return BroadcastBackend::Id{static_cast<std::byte>(++ids_)};
                },
            .join = [this](const BroadcastBackend::Id& id, int rank, int size,
                           const std::function<bool()>& gives_up) -> std::unique_ptr<BroadcastRank> {
              if (refuses_) throw Error("the fake", "refuses");
              auto joined = std::make_unique<Rank>(*this, communicator_of(id, size), rank);
              joined->wait_for_all(gives_up);
              return joined;
            }};
  }

  // Makes every join() fail, as NCCL's do for two ranks on one GPU.
  void refuse() { refuses_ = true; }
  // Broadcasts that are complete, and the bytes of the largest.
  [[nodiscard]] std::size_t broadcasts() const { return broadcasts_; }
  [[nodiscard]] std::size_t largest() const { return largest_; }
  // The sizes of the communicators that have been joined.
  [[nodiscard]] std::vector<int> sizes() const { return sizes_; }

 private:
  struct Communicator {
    BroadcastBackend::Id id;
    int size = 0;
    int arrived = 0;                                     // ranks that have made the call under way
    std::size_t calls = 0;                               // that are complete
    std::map<std::size_t, std::vector<std::byte>> sent;  // by call
  };

  class Rank final : public BroadcastRank {
   public:
    Rank(FakeNccl& all, Communicator& communicator, int rank) : all_(all), communicator_(communicator), rank_(rank) {}

    void broadcast(std::byte* data, std::size_t bytes, int root, const std::function<bool()>& gives_up) override {
      const std::size_t call = calls_;
      if (rank_ == root) {
        std::vector<std::byte> sent(bytes);
        all_.device_.download(sent.data(), data, bytes);
        const std::lock_guard lock(all_.mutex_);
        communicator_.sent[call] = std::move(sent);
        ++all_.broadcasts_;
        all_.largest_ = std::max(all_.largest_, bytes);
      }
      wait_for_all(gives_up);
      const std::lock_guard lock(all_.mutex_);
      const std::vector<std::byte>& sent = communicator_.sent.at(call);
      if (sent.size() != bytes) throw Error("the fake", text_of(bytes, " bytes instead of ", sent.size()));
      if (rank_ != root) all_.device_.upload(data, sent.data(), bytes);
    }

    void wait_for_all(const std::function<bool()>& gives_up) {
      std::unique_lock lock(all_.mutex_);
      const std::size_t call = calls_++;
      if (++communicator_.arrived == communicator_.size) {
        communicator_.arrived = 0;
        ++communicator_.calls;
        all_.changed_.notify_all();
      }
      while (communicator_.calls == call) {
        if (gives_up()) throw Error("the fake", "was given up");
        all_.changed_.wait_for(lock, std::chrono::milliseconds(1));
      }
    }

   private:
    FakeNccl& all_;
    Communicator& communicator_;
    int rank_;
    std::size_t calls_ = 0;  // of this rank
  };

  Communicator& communicator_of(const BroadcastBackend::Id& id, int size) {
    const std::lock_guard lock(mutex_);
    for (const auto& one : communicators_) {
      if (one->id != id) continue;
      EXPECT_EQ(one->size, size);
      return *one;
    }
    sizes_.push_back(size);
    communicators_.push_back(std::make_unique<Communicator>(Communicator{.id = id, .size = size, .sent = {}}));
    return *communicators_.back();
  }

  Device& device_;
  std::atomic<bool> refuses_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
  int ids_ = 0;
  std::vector<std::unique_ptr<Communicator>> communicators_;
  std::vector<int> sizes_;
  std::size_t broadcasts_ = 0;
  std::size_t largest_ = 0;
};

}  // namespace hone::test
