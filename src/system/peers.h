// Connections between all processes ("ranks") of a job, over TCP or on one machine: they find each other at rank 0's
// address, exchange bytes in steps that two or more ranks take together, and learn of a rank that has failed, ended or
// stopped answering.
//
// Each rank has one connection to each other rank. A rank that fails sends the reason to the others. A rank that is
// killed closes its connections. A rank that hangs is noticed when the others have waited for the answer limit.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/descriptor.h"
#include "core/error.h"
#include "system/job_place.h"

namespace hone {

// The end of a job because of another rank. Exactly one rank reports it: the one that failed, or of a rank that can no
// longer do so, the lowest of those that are left.
class JobFailure : public Error {
 public:
  JobFailure(std::string_view where, std::string_view what, std::string_view fix, bool is_reported_elsewhere)
      : Error(where, what, fix), reported_elsewhere_(is_reported_elsewhere) {}
  [[nodiscard]] bool is_reported_elsewhere() const { return reported_elsewhere_; }

 private:
  bool reported_elsewhere_;
};

inline constexpr std::chrono::seconds kJoinLimit{120};
inline constexpr std::chrono::seconds kAnswerLimit{1800};  // transformers' ddp_timeout

struct PeerLimits {
  std::chrono::milliseconds join = kJoinLimit;      // from the first rank's start until all ranks have met
  std::chrono::milliseconds answer = kAnswerLimit;  // longest time without a byte from a rank that must answer
};

// For use by one thread, except has_lost_one().
class Peers {
 public:
  // Meets all other ranks. Throws Error if a rank does not come in time, the port is in use, or rank 0 has refused this
  // process: another key, another number of processes, or a rank that is taken.
  explicit Peers(const JobPlace& place, const PeerLimits& limits = {});
  Peers(const Peers&) = delete;
  Peers& operator=(const Peers&) = delete;
  ~Peers();

  [[nodiscard]] const JobPlace& place() const { return place_; }
  [[nodiscard]] int rank() const { return place_.rank; }
  [[nodiscard]] int size() const { return place_.size; }
  [[nodiscard]] const PeerLimits& limits() const { return limits_; }
  // Returns "rank 2 (HOST)".
  [[nodiscard]] std::string name_of(int rank) const;
  // Sets what the job does, for messages about a lost rank: "step 12".
  void set_activity(std::string activity) { activity_ = std::move(activity); }

  // Bytes for and from one other rank. The other rank must expect and send as many, and any two ranks must agree on the
  // order of the exchanges between them.
  struct Transfer {
    int peer = 0;
    std::span<const std::byte> out;
    std::span<std::byte> in;
  };
  // Sends and receives all transfers, at most one for each other rank. Throws JobFailure if a rank is lost.
  void exchange(std::span<const Transfer> transfers);

  // Waits, without a limit, until a rank has sent something or has ended. The processor is idle meanwhile.
  void wait_for(int rank) const;

  // Called by some ranks of the job, ascending, in the same order. Returns the text of the first one. Throws JobFailure
  // if one of them is lost.
  [[nodiscard]] std::string broadcast(std::string_view text, std::span<const int> group);

  // The following are called by all ranks in the same order. They throw JobFailure if a rank is lost.
  //
  // Returns the text of each rank.
  [[nodiscard]] std::vector<std::string> gather(std::string_view text);
  // Returns the text of rank 0.
  [[nodiscard]] std::string broadcast(std::string_view text);
  // Replaces the values by their sums over all ranks, added in the order of ranks.
  void sum(std::span<double> values);
  // Replaces the values by their maxima over all ranks.
  void maximum(std::span<double> values);
  // Returns true if any rank passes true.
  [[nodiscard]] bool any(bool mine);
  void barrier() { (void)any(false); }

  // Sends the reason for which this rank ends to all other ranks, which then throw JobFailure, and closes the
  // connections. An empty reason says that another rank reports it. Does nothing if they are closed.
  void fail(std::string_view reason) noexcept;
  // Waits a moment and returns true if a rank below this one has sent a reason, too, probably the same.
  [[nodiscard]] bool has_failed_below();
  // Returns true if a rank has closed its connection. Reads nothing; callable from any thread.
  [[nodiscard]] bool has_lost_one() const;
  // Throws JobFailure about the rank that has closed its connection, or has not answered if none has.
  [[noreturn]] void throw_lost();

 private:
  struct FrameHeader;
  struct Flow;  // the progress of a transfer

  void send_some(Flow& flow);
  void receive_some(Flow& flow);
  void receive_header(Flow& flow);
  // Throws JobFailure for a failure that rank `from` has reported in a text of `bytes` bytes, which begins with `text`.
  [[noreturn]] void throw_reported(int from, std::uint32_t kind, std::uint64_t about, std::size_t bytes,
                                   std::string text);
  // Throws JobFailure about a rank whose connection has ended, or the reason for it that a rank has sent meanwhile.
  [[noreturn]] void throw_ended(int peer);
  [[noreturn]] void throw_silent(int peer);
  // Tells all ranks but `peer` that it is lost and throws.
  [[noreturn]] void give_up_on(int peer, std::string_view what, std::string_view fix);
  // Throws a failure that some rank has already sent.
  void look_for_reports();
  void send_failure(std::uint32_t kind, std::uint64_t about, std::string_view text) noexcept;
  [[nodiscard]] bool reports_about(int lost) const { return place_.rank == (lost == 0 ? 1 : 0); }

  JobPlace place_;
  PeerLimits limits_;
  std::vector<Descriptor> connections_;  // [size]; that of this rank is closed
  std::vector<std::string> hosts_;       // [size]
  std::string activity_;
  std::vector<std::uint64_t> exchanged_;  // [size]: exchanges with each rank so far
};

}  // namespace hone
