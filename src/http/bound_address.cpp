#include "http/bound_address.h"

#include <fcntl.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <utility>

#include "core/error.h"

namespace hone {

using tcp = boost::asio::ip::tcp;

void throw_cannot_listen(const std::string& host, std::uint16_t port, const std::string& why) {
  throw Error(text_of(host, ":", port), text_of("cannot listen: ", why), "use another --host or --port");
}

BoundAddress::BoundAddress(const std::string& host, std::uint16_t port) {
  try {
    boost::asio::io_context io;
    tcp::resolver resolver(io);
    const tcp::endpoint endpoint = resolver.resolve(host, std::to_string(port), tcp::resolver::passive)->endpoint();
    tcp::acceptor acceptor(io, endpoint.protocol());
    (void)::fcntl(acceptor.native_handle(), F_SETFD, FD_CLOEXEC);
    acceptor.set_option(tcp::acceptor::reuse_address(true));
    acceptor.bind(endpoint);
    is_ipv6_ = endpoint.protocol() == tcp::v6();
    descriptor_ = acceptor.release();
  } catch (const boost::system::system_error& error) {
    throw_cannot_listen(host, port, error.code().message());
  }
}

BoundAddress::~BoundAddress() {
  if (descriptor_ >= 0) (void)::close(descriptor_);
}

int BoundAddress::release() { return std::exchange(descriptor_, -1); }

}  // namespace hone
