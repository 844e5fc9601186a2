package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/protocol"
	"workflowagent/internal/runner/environ"
	"workflowagent/internal/runner/process"
)

// Input is the source of a launch.
type Input struct {
	Stdin io.Reader
	// File, if set, contains the launch instead of Stdin. The runner removes the file.
	File string
	// HolderEnv is the environment variable with the name under which the runner requests
	// permission to start. Steps do not receive it.
	HolderEnv string
}

// RunInput runs the job that it reads from in, and returns the exit code of the process. version is
// the runner's version.
func RunInput(ctx context.Context, in Input, jobDir, version string) (code int, err error) {
	// Protect the memory before it contains a secret.
	protectErr := process.Protect()
	signals := notifySignals()
	var launch *protocol.Launch
	if in.File != "" {
		launch, err = consumeLaunch(in.File)
	} else {
		launch, err = ReadLaunch(ctx, in.Stdin, signals)
	}
	if err != nil {
		return ExitNoLaunch, err
	}
	stop, err := forward(ctx, launch)
	if err != nil {
		return ExitNoLaunch, err
	}
	defer stop()
	if launch.Probe != nil {
		return runProbe(ctx, launch, version, signals)
	}
	holder := ""
	if in.HolderEnv != "" {
		holder = os.Getenv(in.HolderEnv)
		if err := os.Unsetenv(in.HolderEnv); err != nil {
			return ExitNoLaunch, fmt.Errorf("removing a variable from the steps' environment: %w", err)
		}
	}
	if launch.AskLeave {
		if holder == "" {
			return ExitNoLaunch, errors.New("starting a job: its runner has no name; nothing was started: only the agent may start this program, with --holder-env")
		}
		// The server repeats its permission for a holder, whose first response can be lost. Only a
		// runner with permission creates the directory.
		if _, err := os.Lstat(jobDir); !errors.Is(err, fs.ErrNotExist) {
			return ExitNoLeave, errors.New("starting a job: this pod has already started it; nothing was started: a cluster must not restart the container of a job")
		}
	}
	return runLaunch(ctx, launch, Options{JobDir: jobDir, Signals: signals, InPod: in.File != ""}, holder, version, protectErr)
}

// runLaunch runs the job of a launch. It completes opts. protectErr is the reason why the runner's
// memory is not protected, or nil.
func runLaunch(ctx context.Context, launch *protocol.Launch, opts Options, holder, version string, protectErr error) (code int, err error) {
	logger := logrus.New()
	out := &console{out: os.Stdout}
	logger.SetOutput(consoleLog{out, os.Stderr})
	logger.SetFormatter(&logrus.TextFormatter{DisableColors: true, FullTimestamp: true})
	log := logger.WithField("job_id", launch.JobID)
	if d := launch.Definition; d != nil && d.Deployment != nil {
		log = log.WithFields(logrus.Fields{"deployment_id": d.Deployment.ID, "stack": d.Deployment.StackName()})
	} else if d != nil && d.PolicyEvaluation != nil {
		log = log.WithField("stack", d.PolicyEvaluation.StackName())
	}
	if protectErr != nil {
		log.WithError(protectErr).Warn("the runner's memory is not protected from the job's own processes")
	}
	if opts.JobDir, err = filepath.Abs(opts.JobDir); err != nil {
		return ExitNoLaunch, fmt.Errorf("finding the job directory: %w", err)
	}
	if opts.Self, err = os.Executable(); err != nil {
		return ExitNoLaunch, fmt.Errorf("finding the runner's own binary: %w", err)
	}
	if err := environ.UseProxy(launch); err != nil {
		return ExitNoLaunch, err
	}
	userAgent := cmp.Or(launch.UserAgent, "workflow-runner/"+version)
	var server Server = Offline{}
	if !launch.Offline {
		client, err := protocol.NewClient(protocol.Options{
			BaseURL:   launch.ServiceURL,
			UserAgent: userAgent,
			CACertPEM: []byte(launch.CACertPEM),
			Signed:    launch.Signed,
			Log:       log,
		})
		if err != nil {
			return ExitNoLaunch, fmt.Errorf("preparing the connection to the server: %w", err)
		}
		job := client.Job(launch.JobID, launch.JobToken)
		if launch.AskLeave {
			job.SetHolder(holder)
			if opts.Cancelled, err = askLeave(ctx, job, launch.Epoch == 0, opts.Signals, log); err != nil {
				return ExitNoLeave, err
			}
		}
		server = job
	}
	// From here on, the job has permission to start, so every failure must be reported.
	opts.Environ, opts.Echo, opts.Log, opts.Version = os.Environ(), out, log, version
	return Run(ctx, launch, server, opts)
}

// notifySignals returns a channel for the signals that ask the runner to stop the job.
func notifySignals() <-chan os.Signal {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	// The job must continue if the terminal or the reader of its output disappears. These signals
	// are caught instead of ignored, because the steps would inherit ignored signals.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE, syscall.SIGHUP)
	return signals
}

// runProbe runs a launch that only probes URLs.
func runProbe(ctx context.Context, launch *protocol.Launch, version string, signals <-chan os.Signal) (code int, err error) {
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		select {
		case <-signals:
			cancel()
		case <-ctx.Done():
		}
	})
	defer watching.Wait()
	defer cancel()
	if err := RunProbe(ctx, launch, version, os.Stdout); err != nil {
		return ExitFailed, err
	}
	return 0, nil
}

// Debug runs a job definition without a server. It reads the definition from jobFile, or from stdin
// if jobFile is "-". It returns the exit code of the process. If keep is set, the job's directory
// remains.
func Debug(ctx context.Context, stdin io.Reader, jobFile string, keep bool, version string) (code int, err error) {
	protectErr := process.Protect()
	signals := notifySignals()
	definition, err := protocol.ReadDefinition(stdin, jobFile)
	if err != nil {
		return ExitNoLaunch, err
	}
	dir, err := os.MkdirTemp("", "workflow-debug-")
	if err != nil {
		return ExitNoLaunch, fmt.Errorf("creating the job's directory: %w", err)
	}
	defer func() {
		if keep {
			fmt.Fprintln(os.Stderr, "The job's directory is", dir)
			return
		}
		err = errors.Join(err, os.RemoveAll(dir))
	}()
	launch := &protocol.Launch{Offline: true, JobID: "debug", Epoch: 1, Definition: definition, EchoLog: true}
	return runLaunch(ctx, launch, Options{JobDir: dir, Signals: signals}, "", version, protectErr)
}
