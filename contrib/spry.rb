# Formula for Homebrew (macOS and Linux). Untested: no Mac is at hand. `brew install --build-from-source ./contrib/spry.rb` in a
# checkout of a release; url and sha256 are those of the release's sources, which `make release` lists in SHA256SUMS.
class Spry < Formula
  desc "Run language models on this machine"
  homepage "https://spry.invalid/"
  url "https://spry.invalid/spry-0.1.0.tar.gz"
  sha256 "0000000000000000000000000000000000000000000000000000000000000000"
  license "MIT"

  depends_on "cmake" => :build
  depends_on "ninja" => :build
  depends_on "pkgconf" => :build
  depends_on "gnutls"
  depends_on "jansson"
  depends_on "jpeg-turbo"
  depends_on "libpng"
  depends_on "libsndfile"
  depends_on "pcre2"
  depends_on "portaudio"
  depends_on "sqlite"
  depends_on "utf8proc"
  depends_on "webp"
  depends_on "xxhash"
  depends_on "zstd"
  uses_from_macos "curl", since: :ventura

  def install
    system "cmake", "-S", ".", "-B", "build", "-G", "Ninja", "-DBUILD_TESTING=OFF", *std_cmake_args
    system "cmake", "--build", "build"
    system "cmake", "--install", "build"
  end

  service do
    run [opt_bin/"spry", "serve", "--port", "8080"]
    keep_alive crashed: true
  end

  test do
    assert_match "fox", shell_output("#{bin}/spry run --temperature 0 -n 40 -p 'Tell me a story about a fox.'")
  end
end
