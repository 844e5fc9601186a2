# A small stand-in for Homebrew: it evaluates a formula for a platform, installs the
# files of the current directory as the formula says, runs its test block, and prints
# what it learned as JSON. Whatever the formula uses beyond this is an error.
#
#   ruby brew.rb FORMULA macos|linux arm|intel PREFIX

require "json"
require "open3"
require "pathname"
require "fileutils"

FORMULA_FILE, SYSTEM, PROCESSOR, PREFIX = ARGV
HOMEBREW_PREFIX = Pathname.new(PREFIX)

class Pathname
  def install(*sources)
    mkpath
    sources.flatten.each do |source|
      raise "#{source} is not in the archive" unless File.exist?(source)

      FileUtils.mv source, self
    end
  end

  def install_symlink(*sources)
    mkpath
    sources.each do |source|
      (source.is_a?(Hash) ? source : { source => File.basename(source) }).each do |target, name|
        (self/name).make_symlink Pathname.new(target).relative_path_from(self)
      end
    end
  end
end

# Platform blocks, as formulae and services have them.
module Platforms
  { macos: SYSTEM, linux: SYSTEM, arm: PROCESSOR, intel: PROCESSOR }.each do |name, is|
    define_method("on_#{name}") { |&block| instance_eval(&block) if is == name.to_s }
  end
end

class Service
  include Platforms

  ATTRIBUTES = [:run, :working_dir, :log_path, :error_log_path, :keep_alive, :restart_delay, :environment_variables].freeze

  attr_reader :said

  def initialize(formula, &block)
    @formula = formula
    @said = {}
    instance_eval(&block)
  end

  ATTRIBUTES.each do |name|
    define_method(name) do |value|
      raise "#{name} is said twice" if @said.key?(name)

      @said[name] = value
    end
  end

  [:bin, :etc, :libexec, :opt_bin, :var].each { |name| define_method(name) { @formula.public_send(name) } }

  def std_service_path_env
    "#{HOMEBREW_PREFIX}/bin:/usr/bin:/bin"
  end
end

class Formula
  class << self
    include Platforms

    attr_reader :said, :service_block, :test_block

    def inherited(formula)
      super
      formula.instance_variable_set(:@said, {})
    end

    [:desc, :homepage, :version, :license, :url, :sha256].each do |name|
      define_method(name) do |value|
        raise "#{name} is said twice" if @said.key?(name)

        @said[name] = value
      end
    end

    def service(&block)
      @service_block = block
    end

    def test(&block)
      @test_block = block
    end
  end

  def version = self.class.said.fetch(:version)
  def name = File.basename(FORMULA_FILE, ".rb")
  def keg = HOMEBREW_PREFIX/"Cellar"/name/version
  def bin = keg/"bin"
  def libexec = keg/"libexec"
  def man1 = keg/"share/man/man1"
  def pkgshare = keg/"share"/name
  def etc = HOMEBREW_PREFIX/"etc"
  def var = HOMEBREW_PREFIX/"var"
  def opt_bin = HOMEBREW_PREFIX/"opt"/name/"bin"

  def link
    (HOMEBREW_PREFIX/"opt").mkpath
    (HOMEBREW_PREFIX/"opt"/name).make_symlink keg
  end

  def generate_completions_from_executable(program, *arguments, shells:)
    shells.each do |shell|
      text = shell_output([program, *arguments, shell].join(" "))
      raise "no completion for #{shell}" if text.empty?

      (keg/"completions").mkpath
      (keg/"completions"/shell.to_s).write text
    end
  end

  def shell_output(command)
    out, status = Open3.capture2(command)
    raise "#{command}: #{status}" unless status.success?

    out
  end

  def assert_match(wanted, text)
    raise "#{text.inspect} has no #{wanted.inspect}" unless text.include?(wanted)
  end

  def assert_predicate(thing, question)
    raise "#{thing} is not #{question}" unless thing.public_send(question)
  end
end

load FORMULA_FILE
formula_class = CustomerManagedWorkflowAgent
formula = formula_class.new
formula.install
formula.link
formula.instance_eval(&formula_class.test_block)
puts JSON.generate(
  said:    formula_class.said,
  service: Service.new(formula, &formula_class.service_block).said,
  caveats: formula.caveats,
)
