package upkeep

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/agent/config"
	"workflowagent/internal/host/release"
	"workflowagent/internal/host/service"
	"workflowagent/internal/host/update"
)

// Manual is an update that the operator requests with a command.
type Manual struct {
	Version string // version of this program
	Load    config.LoadOptions
	Service service.Options // options of the service to restart
	Want    string          // version of the requested release; "" means the newest
	Out     io.Writer       // receives the progress and the log
}

// Answer is the result that is reported to the operator.
type Answer struct {
	Version   string    `json:"version"`             // the installed version
	Available string    `json:"available,omitempty"` // the release that was found
	Newer     bool      `json:"newer"`               // whether Available is newer than the version installed before
	Published time.Time `json:"published,omitzero"`
	Notes     string    `json:"notes,omitempty"`
	Updated   bool      `json:"updated"`
	Reason    string    `json:"reason,omitempty"`  // why the new version was rolled back
	Command   string    `json:"command,omitempty"` // the update command of the package manager that owns the program
	Text      string    `json:"-"`                 // the result as a sentence; "" if the error states it
}

// Check returns whether a newer release is available.
func (m *Manual) Check(ctx context.Context) (*Answer, error) {
	install, err := update.FindOwn(ctx)
	packaged, _ := errors.AsType[*update.PackagedError](err)
	_, _, answer, err := m.find(ctx, "")
	if err != nil {
		return nil, err
	}
	if packaged != nil && answer.Newer {
		answer.Command = packaged.Command
	}
	answer.Text = m.describe(answer, install)
	return &answer, nil
}

// Install installs the release and restarts a running service. Even with an error, Install can
// return the installed version.
func (m *Manual) Install(ctx context.Context) (*Answer, error) {
	install, err := update.FindOwn(ctx)
	if packaged, ok := errors.AsType[*update.PackagedError](err); ok {
		return &Answer{Version: m.Version, Command: packaged.Command}, err
	}
	if err != nil {
		return nil, err
	}
	// Report missing permissions before the download.
	if err := install.Prove(); errors.Is(err, fs.ErrPermission) {
		return nil, fmt.Errorf("%w: run this as its owner, with sudo for an installation of the machine", err)
	} else if err != nil {
		return nil, err
	}
	// The agent may run as another user, so this command uses its own file.
	finder, candidate, answer, err := m.find(ctx, filepath.Join(install.Root, update.SeenFile))
	if err != nil {
		return nil, err
	}
	if m.Want != "" && !answer.Newer && m.Want != m.Version {
		return nil, fmt.Errorf("%s: %w", m.Want, update.ErrDowngrade)
	}
	// The version of this program can differ from the installed version.
	current, err := install.Current()
	if err == nil && (answer.Newer || current != m.Version) {
		return m.install(ctx, install, finder, candidate, answer)
	}
	answer.Text = answer.Version + " is installed, and no newer release is available."
	if m.Want != "" {
		answer.Text = installed(answer.Version)
	}
	return &answer, err
}

// find returns the release in the configured source. memory is the path of the file that records
// the newest state of a mirror; "" means that no state is recorded.
func (m *Manual) find(ctx context.Context, memory string) (finder *update.Finder, c update.Candidate, answer Answer, err error) {
	settings, err := m.config()
	if err != nil {
		return nil, c, answer, err
	}
	caPEM, err := settings.CACertificates()
	if err != nil {
		return nil, c, answer, config.Invalid(fmt.Errorf("ca_certificate_file: %w", err))
	}
	if finder, err = NewFinder(settings, caPEM, memory); err != nil {
		return nil, c, answer, err
	}
	if m.Want == "" {
		c, err = finder.Latest(ctx)
	} else {
		c, err = finder.Version(ctx, m.Want)
	}
	if err != nil {
		return nil, c, answer, err
	}
	newer, err := c.Newer(m.Version)
	return finder, c, Answer{Version: m.Version, Available: c.Version, Newer: newer, Published: c.Published, Notes: c.Notes}, err
}

func (m *Manual) config() (*config.Config, error) {
	o := m.Load
	if chosen, err := service.Chosen(m.Service); o.Path == "" && err == nil {
		o.Path = chosen.Config
	}
	if _, err := os.Lstat(service.SystemConfig); o.Path == "" && err == nil && !m.Service.User {
		o.Path = service.SystemConfig
	}
	c, err := config.Load(o)
	if errors.Is(err, fs.ErrPermission) {
		err = fmt.Errorf("%w: it configures the source of releases, so run this as its owner, with sudo for a service of the machine", err)
	}
	if err != nil {
		return nil, config.Invalid(err)
	}
	return c, nil
}

// describe returns the result of a check as a sentence. install is empty if this program cannot
// update itself.
func (m *Manual) describe(answer Answer, install update.Installation) string {
	how := release.Program + " update"
	if m.Want != "" {
		how += " --version " + m.Want
	}
	if answer.Command != "" {
		how = answer.Command
	} else if install.Root == "" {
		how = "install.sh, or replace this program by hand"
	}
	switch {
	case answer.Newer:
		return fmt.Sprintf("%s is available (running %s). To install: %s", answer.Available, answer.Version, how)
	case m.Want != "":
		return fmt.Sprintf("%s is available, but is not newer than the running %s.", answer.Available, answer.Version)
	}
	return answer.Version + " is the newest release."
}

func installed(version string) string { return version + " is already installed." }

func (m *Manual) install(ctx context.Context, install update.Installation, finder *update.Finder, c update.Candidate, answer Answer) (*Answer, error) {
	stage := filepath.Join(install.Root, update.ManualStage)
	bar := newProgress(m.Out, c.Version)
	err := finder.Stage(ctx, c, update.Staging{Dir: stage, Explicit: m.Want != "", Progress: bar.show})
	bar.finish()
	if errors.Is(err, update.ErrBusy) {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(stage) }() // the next update uses or replaces any leftovers
	if err != nil {
		return nil, err
	}
	logger := logrus.New()
	logger.SetOutput(m.Out)
	logger.SetFormatter(&logrus.TextFormatter{DisableTimestamp: true})
	a := &update.Applier{Installation: install, Log: logrus.NewEntry(logger)}
	if a.Keys, err = release.BuiltinKeys(); err != nil {
		return nil, err
	}
	restarted := " A running agent keeps its version until it is restarted."
	if s := OpenService(m.Service, install, m.config, ""); s != nil {
		a.Service, a.Ready = s, s.Ready
		if health, err := s.Health(ctx); err != nil || health.Progress != update.NotRunning {
			restarted = "" // Apply restarts the agent, or returns an error
		}
	}
	result, err := a.Apply(ctx, stage)
	if err != nil {
		return nil, err
	}
	if err := install.Prove(); err != nil {
		return nil, err
	}
	if answer.Version, err = install.Current(); err != nil {
		return nil, err
	}
	answer.Updated, answer.Reason = result.Outcome == update.Updated, result.Reason
	switch result.Outcome {
	case update.Updated:
		answer.Text = fmt.Sprintf("%s is installed (it was %s).%s", answer.Version, result.From, restarted)
	case update.Nothing:
		answer.Text = installed(answer.Version)
	case update.Back:
		return &answer, fmt.Errorf("%s did not work and was rolled back; %s is installed: %s", result.To, answer.Version, result.Reason)
	}
	return &answer, nil
}

// RequireService returns an error if the service does not exist. Without this check, an update
// would silently restart nothing.
func RequireService(ctx context.Context, o service.Options) error {
	s, err := service.Open(o)
	if err != nil {
		return err
	}
	_, err = s.Describe(ctx)
	return service.Explain(s, err)
}
