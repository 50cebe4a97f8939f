#include "support/tls_client.h"

#include <openssl/bio.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <csignal>
#include <stdexcept>

namespace hone::test {

struct TlsClient::Session {
  std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context{SSL_CTX_new(TLS_client_method()), &SSL_CTX_free};
  std::unique_ptr<SSL, decltype(&SSL_free)> tls{nullptr, &SSL_free};
};

TlsClient::TlsClient(std::uint16_t port, const std::string& trusted, int newest)
    : RawClient(port), session_(std::make_unique<Session>()) {
  std::signal(SIGPIPE, SIG_IGN);  // OpenSSL writes to sockets that the server may have closed
  SSL_CTX* context = session_->context.get();
  const std::unique_ptr<BIO, decltype(&BIO_free)> source(
      BIO_new_mem_buf(trusted.data(), static_cast<int>(trusted.size())), &BIO_free);
  const std::unique_ptr<X509, decltype(&X509_free)> certificate(
      PEM_read_bio_X509(source.get(), nullptr, nullptr, nullptr), &X509_free);
  X509_STORE_add_cert(SSL_CTX_get_cert_store(context), certificate.get());
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
  SSL_CTX_set_max_proto_version(context, newest);
  session_->tls.reset(SSL_new(context));
  SSL* tls = session_->tls.get();
  SSL_set_security_level(tls, 0);  // old versions are the server's to refuse
  SSL_set1_host(tls, "localhost");
  SSL_set_fd(tls, socket_);
  if (SSL_connect(tls) != 1) throw std::runtime_error("cannot set up TLS");
}

TlsClient::~TlsClient() = default;

void TlsClient::close() {
  if (socket_ >= 0) SSL_shutdown(session_->tls.get());
  RawClient::close();
}

bool TlsClient::ended_cleanly() const { return (SSL_get_shutdown(session_->tls.get()) & SSL_RECEIVED_SHUTDOWN) != 0; }

std::string TlsClient::version() const { return SSL_get_version(session_->tls.get()); }

std::string TlsClient::encrypted(std::string_view content) {
  SSL* tls = session_->tls.get();
  BIO* memory = BIO_new(BIO_s_mem());
  SSL_set0_wbio(tls, memory);
  SSL_write(tls, content.data(), static_cast<int>(content.size()));
  char* bytes = nullptr;
  const long count = BIO_get_mem_data(memory, &bytes);
  std::string message(bytes, static_cast<std::size_t>(count));
  SSL_set0_wbio(tls, BIO_new_socket(socket_, BIO_NOCLOSE));
  return message;
}

void TlsClient::send_raw(std::string_view bytes) { (void)RawClient::write_some(bytes); }

ssize_t TlsClient::write_some(std::string_view bytes) {
  return SSL_write(session_->tls.get(), bytes.data(), static_cast<int>(bytes.size()));
}

ssize_t TlsClient::read_some(char* bytes, std::size_t size) {
  return SSL_read(session_->tls.get(), bytes, static_cast<int>(size));
}

RawResponse fetch_encrypted(std::uint16_t port, const std::string& trusted, std::string_view method,
                            std::string_view target, std::string_view body) {
  TlsClient client(port, trusted);
  client.send(http_request(method, target, body));
  return client.receive();
}

}  // namespace hone::test
