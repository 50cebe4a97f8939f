#include "core/interrupt.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>

#include "core/log.h"

namespace hone {
namespace {

TEST(Interrupt, TheFirstIsSeenAndCanBeCleared) {
  EXPECT_EXIT(
      {
        catch_interrupts();
        throw_if_interrupted();
        ::raise(SIGINT);
        if (!interrupted()) std::exit(1);
        clear_interrupt();
        throw_if_interrupted();
        ::raise(SIGTERM);
        try {
          throw_if_interrupted();
        } catch (const Interrupted&) {
          std::exit(7);
        }
        std::exit(2);
      },
      testing::ExitedWithCode(7), "hone: stopping; press Ctrl\\+C again to exit immediately");
}

TEST(Interrupt, TheSecondLeavesAtOnce) {
  EXPECT_EXIT(
      {
        catch_interrupts();
        ::raise(SIGINT);
        ::raise(SIGINT);
        std::exit(0);
      },
      testing::ExitedWithCode(130), "");
}

TEST(Log, MessagesStandAboveTheStatusLine) {
  testing::internal::CaptureStderr();
  set_status_line("bar 1");
  log_info("hello");
  log_warning("careful");
  set_status_line("bar 2");
  set_status_line("");
  set_status_line("");
  log_line("plain");
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "\r\033[Kbar 1"
            "\r\033[Khone: hello\nbar 1"
            "\r\033[Khone: warning: careful\nbar 1"
            "\r\033[Kbar 2"
            "\r\033[K"
            "plain\n");
}

TEST(Log, OnceIsOnce) {
  testing::internal::CaptureStderr();
  log_once("one test says this");
  log_once("one test says this");
  set_quiet(true);
  log_info("unheard");
  log_warning("heard");
  set_quiet(false);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "hone: one test says this\nhone: warning: heard\n");
}

}  // namespace
}  // namespace hone
