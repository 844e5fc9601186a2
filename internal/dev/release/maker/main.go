// Command maker creates a release and its mirror. It runs goreleaser for the archives and packages
// that .goreleaser.yaml describes, and creates all other files itself. "make packages" runs it;
// docs/releasing.md describes its use.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	code := 0
	if err := run(ctx, os.Args[1:]); err != nil {
		code = 1
		if usage := new(usageError); errors.As(err, &usage) {
			code = 2
		}
		fmt.Fprintln(os.Stderr, "make packages:", err)
	}
	stop()
	os.Exit(code)
}

type usageError struct{ error }

func (e *usageError) Unwrap() error { return e.error }

// options are the options of the command line. Empty options have computed defaults.
type options struct {
	version    string // v1.2.3
	dist       string // output directory
	mirror     string // mirror to add the release to; "" means dist/mirror
	platforms  string // comma-separated, such as linux/amd64; "" means all
	home       string // URL of the mirror, for programs and install.sh
	keyFile    string // private release key
	trust      string // additional public release keys (PEM): the previous or the next one
	gpgKeyFile string // secret key that signs packages and repositories
	cache      string // directory of this machine's keys
	goreleaser string // path of the program
	push       string // REGISTRY/PREFIX to push images to; "" means none
	require    bool   // a missing tool is an error instead of a skipped part
}

func run(ctx context.Context, args []string) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	m, err := newMaker(ctx, o)
	if err != nil {
		return err
	}
	defer m.close()
	return m.make(ctx)
}

func parse(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("maker", flag.ContinueOnError)
	flags.StringVar(&o.version, "version", "", "`VERSION` of the release, such as v1.2.3; default: the tag of this commit, or a version below all releases")
	flags.StringVar(&o.dist, "dist", "dist", "output `DIR`")
	flags.StringVar(&o.mirror, "mirror", "", "`DIR` of the mirror to add the release to; default: mirror in the directory of -dist")
	flags.StringVar(&o.platforms, "platforms", "", "comma-separated `LIST`, such as linux/amd64; default: all")
	flags.StringVar(&o.home, "home", "", "`URL` of the mirror of updates for installed programs")
	flags.StringVar(&o.keyFile, "key", "", "`FILE` with the private release key; default: a key of this machine")
	flags.StringVar(&o.trust, "trust", "", "`FILE` with additional public release keys that programs trust, for use while a key is replaced")
	flags.StringVar(&o.gpgKeyFile, "gpg-key", "", "`FILE` with the secret GPG key; default: a key of this machine")
	flags.StringVar(&o.cache, "cache", "", "`DIR` for the keys of this machine")
	flags.StringVar(&o.goreleaser, "goreleaser", "goreleaser", "`PROGRAM` to build with")
	flags.StringVar(&o.push, "push", "", "`REGISTRY/PREFIX` to push the images to; default: they are only written to the directory images of -dist")
	flags.BoolVar(&o.require, "require-all", false, "fail if this machine lacks a tool, instead of skipping the steps that require it")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			os.Exit(0)
		}
		return options{}, &usageError{err}
	}
	if flags.NArg() > 0 {
		return options{}, &usageError{fmt.Errorf("unexpected arguments: %s", strings.Join(flags.Args(), " "))}
	}
	if o.cache == "" && (o.keyFile == "" || o.gpgKeyFile == "") {
		return options{}, &usageError{errors.New("-cache is required unless -key and -gpg-key are given")}
	}
	return o, nil
}
