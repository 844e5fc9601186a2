// Command languages is the language host of Node.js, Python or Go, as the name says under which it
// runs: pulumi-language-nodejs, for example. Pulumi publishes its own hosts as programs only. This
// one installs the dependencies of a program with the same packages of Pulumi's SDK, and runs a
// program that registers no resources.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/common/util/rpcutil"
	"github.com/pulumi/pulumi/sdk/v3/nodejs/npm"
	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
	"github.com/pulumi/pulumi/sdk/v3/python/toolchain"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"
)

// language installs and runs the programs of one language.
type language struct {
	install func(ctx context.Context, p program, stdout, stderr io.Writer) error
	command func(ctx context.Context, p program) (*exec.Cmd, error)
}

// program is a program and the options of its runtime.
type program struct {
	root, dir string
	options   map[string]any
}

func (p program) option(name string) string {
	text, _ := p.options[name].(string)
	return text
}

func programOf(info *pulumirpc.ProgramInfo) program {
	return program{info.GetRootDirectory(), info.GetProgramDirectory(), info.GetOptions().AsMap()}
}

var languages = map[string]language{
	"nodejs": {
		install: func(ctx context.Context, p program, stdout, stderr io.Writer) error {
			_, err := npm.Install(ctx, npm.PackageManagerType(p.option("packagemanager")), p.dir, false, stdout, stderr)
			return err
		},
		command: func(ctx context.Context, p program) (*exec.Cmd, error) {
			return exec.CommandContext(ctx, "node", p.dir), nil
		},
	},
	"python": {
		install: func(ctx context.Context, p program, stdout, stderr io.Writer) error {
			tools, err := python(p)
			if err != nil {
				return err
			}
			return tools.InstallDependencies(ctx, p.dir, false, true, stdout, stderr)
		},
		command: func(ctx context.Context, p program) (*exec.Cmd, error) {
			tools, err := python(p)
			if err != nil {
				return nil, err
			}
			return tools.Command(ctx, p.dir)
		},
	},
	"go": {
		install: func(ctx context.Context, p program, stdout, stderr io.Writer) error {
			cmd := exec.CommandContext(ctx, "go", "mod", "tidy")
			cmd.Dir, cmd.Stdout, cmd.Stderr = p.dir, stdout, stderr
			return cmd.Run()
		},
		command: func(ctx context.Context, p program) (*exec.Cmd, error) {
			return exec.CommandContext(ctx, "go", "run", "."), nil
		},
	},
}

func python(p program) (toolchain.Toolchain, error) {
	options := toolchain.PythonOptions{Root: p.root, ProgramDir: p.dir, Virtualenv: p.option("virtualenv")}
	switch p.option("toolchain") {
	case "pip":
		options.Toolchain = toolchain.Pip
	case "poetry":
		options.Toolchain = toolchain.Poetry
	case "uv":
		options.Toolchain = toolchain.Uv
	}
	return toolchain.ResolveToolchain(options)
}

func main() {
	if err := serve(); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func serve() error {
	name := strings.TrimPrefix(filepath.Base(os.Args[0]), "pulumi-language-")
	l, ok := languages[name]
	if !ok {
		return fmt.Errorf("%q is no known language", name)
	}
	flag.String("tracing", "", "ignored")
	flag.String("root", "", "ignored")
	flag.Parse()
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
	defer cancel()
	stopped := make(chan bool)
	go func() {
		<-ctx.Done()
		close(stopped)
	}()
	if engine := flag.Arg(0); engine != "" {
		if err := rpcutil.Healthcheck(ctx, engine, 5*time.Minute, cancel); err != nil {
			return fmt.Errorf("watching the engine: %w", err)
		}
	}
	handle, err := rpcutil.ServeWithOptions(rpcutil.ServeOptions{
		Cancel: stopped,
		Init: func(s *grpc.Server) error {
			pulumirpc.RegisterLanguageRuntimeServer(s, &host{language: l})
			return nil
		},
	})
	if err != nil {
		return fmt.Errorf("starting a server: %w", err)
	}
	fmt.Println(handle.Port)
	return <-handle.Done
}

type host struct {
	pulumirpc.UnimplementedLanguageRuntimeServer
	language language
}

// Handshake implements the language runtime.
func (*host) Handshake(context.Context, *pulumirpc.LanguageHandshakeRequest) (*pulumirpc.LanguageHandshakeResponse, error) {
	return &pulumirpc.LanguageHandshakeResponse{}, nil
}

// GetPluginInfo implements the language runtime.
func (*host) GetPluginInfo(context.Context, *emptypb.Empty) (*pulumirpc.PluginInfo, error) {
	return &pulumirpc.PluginInfo{Version: "3.0.0"}, nil
}

// GetRequiredPackages implements the language runtime.
func (*host) GetRequiredPackages(context.Context, *pulumirpc.GetRequiredPackagesRequest) (*pulumirpc.GetRequiredPackagesResponse, error) {
	return &pulumirpc.GetRequiredPackagesResponse{}, nil
}

// InstallDependencies implements the language runtime.
func (h *host) InstallDependencies(r *pulumirpc.InstallDependenciesRequest, s pulumirpc.LanguageRuntime_InstallDependenciesServer) error {
	closer, stdout, stderr, err := rpcutil.MakeInstallDependenciesStreams(s, r.GetIsTerminal())
	if err != nil {
		return err
	}
	return errors.Join(h.language.install(s.Context(), programOf(r.GetInfo()), stdout, stderr), closer.Close())
}

// Run implements the language runtime. The engine logs what the program prints.
func (h *host) Run(ctx context.Context, r *pulumirpc.RunRequest) (*pulumirpc.RunResponse, error) {
	p := programOf(r.GetInfo())
	cmd, err := h.language.command(ctx, p)
	if err != nil {
		return nil, err
	}
	cmd.Dir, cmd.Stdout, cmd.Stderr = p.dir, os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return &pulumirpc.RunResponse{Error: err.Error(), Bail: true}, nil
	}
	return &pulumirpc.RunResponse{}, nil
}

// RunPlugin implements the language runtime, for policy packs in Node.js. The SDK finds a pack's version in its working
// directory.
func (h *host) RunPlugin(r *pulumirpc.RunPluginRequest, s pulumirpc.LanguageRuntime_RunPluginServer) error {
	closer, stdout, stderr, err := rpcutil.MakeRunPluginStreams(s, false)
	if err != nil {
		return err
	}
	dir := r.GetInfo().GetProgramDirectory()
	args := append([]string{filepath.Join(dir, "node_modules", "@pulumi", "pulumi", "cmd", "run-policy-pack")}, r.GetArgs()...)
	cmd := exec.CommandContext(s.Context(), "node", append(args, dir)...)
	// A pack reads its version from the package.json in its working directory.
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, r.GetEnv(), stdout, stderr
	return errors.Join(cmd.Run(), closer.Close())
}

// Cancel implements the language runtime.
func (*host) Cancel(context.Context, *emptypb.Empty) (*emptypb.Empty, error) {
	return &emptypb.Empty{}, nil
}
