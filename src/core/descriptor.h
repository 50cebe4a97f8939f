// Owner of a POSIX file descriptor.
#pragma once

namespace hone {

// Owns a file descriptor and closes it in the destructor. Movable, not copyable.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor();

  [[nodiscard]] int number() const { return number_; }
  [[nodiscard]] bool open() const { return number_ >= 0; }
  int release();  // returns the number and gives up ownership

 private:
  int number_ = -1;
};

}  // namespace hone
