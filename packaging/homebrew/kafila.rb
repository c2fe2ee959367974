# Of a tap: the release workflow fills in what stands between @s, and publishes it with the release.
class Kafila < Formula
  include Language::Python::Virtualenv

  desc "Run one large language model on machines that people who trust one another own"
  homepage "@HOMEPAGE@"
  version "@VERSION@"
  license "MIT"

  depends_on "python@3.13"

  on_macos do
    depends_on arch: :arm64
    depends_on macos: :sonoma

    on_arm do
      url "@URL_MACOS@", using: :nounzip
      sha256 "@SHA256_MACOS@"
    end
  end

  on_linux do
    depends_on arch: :x86_64
    depends_on "openblas"

    on_intel do
      url "@URL_LINUX@", using: :nounzip
      sha256 "@SHA256_LINUX@"
    end
  end

  def install
    wheel = Dir["*.whl"].first
    virtualenv_create(libexec, "python3.13", without_pip: false)
    system libexec/"bin/python", "-m", "pip", "install", "--only-binary=:all:", "#{buildpath}/#{wheel}[node]"
    bin.install_symlink Dir[libexec/"bin/kafila*"]
    man1.install_symlink Dir[libexec/"share/man/man1/kafila*.1"]
    bash_completion.install_symlink libexec/"share/bash-completion/completions/kafila"
    zsh_completion.install_symlink libexec/"share/zsh/site-functions/_kafila"
    fish_completion.install_symlink libexec/"share/fish/vendor_completions.d/kafila.fish"
  end

  service do
    run [opt_bin/"kafila", "serve"]
    keep_alive successful_exit: false
    log_path var/"log/kafila.log"
    error_log_path var/"log/kafila.log"
  end

  test do
    assert_match "kafila version is #{version}", shell_output("#{bin}/kafila session --version")
    assert_match "protocol", shell_output("#{bin}/kafila-rendezvous --version")
  end
end
