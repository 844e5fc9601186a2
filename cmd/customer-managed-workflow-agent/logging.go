package main

import (
	"fmt"
	"io"
	"log/syslog"
	"os"

	"github.com/sirupsen/logrus"
	logrussyslog "github.com/sirupsen/logrus/hooks/syslog"

	"workflowagent/internal/agent"
	"workflowagent/internal/config"
	"workflowagent/internal/termtext"
)

// newLog returns the agent's own log as the configuration wants it.
func newLog(c *config.Config, debug bool) (*logrus.Logger, error) {
	log := logrus.New()
	log.SetOutput(os.Stderr)
	if debug {
		log.SetLevel(logrus.DebugLevel)
	}
	if c.LogFormat == config.LogJSON {
		log.SetFormatter(&logrus.JSONFormatter{})
	} else {
		log.SetFormatter(&textFormatter{logrus.TextFormatter{FullTimestamp: true}})
	}
	if !c.Syslog {
		return log, nil
	}
	hook, err := logrussyslog.NewSyslogHook("", "", syslog.LOG_DAEMON|syslog.LOG_INFO, "customer-managed-workflow-agent")
	if err != nil {
		return nil, fmt.Errorf("syslog is true, but no syslog daemon can be reached: %w; start one, or set syslog to false", err)
	}
	log.AddHook(hook)
	log.SetOutput(io.Discard)
	return log, nil
}

// textFormatter is logrus's for people. Messages repeat words of servers, engines
// and registries, and on a terminal logrus shows them as they are.
type textFormatter struct{ logrus.TextFormatter }

// Format formats an entry without anything in its message that a terminal obeys.
func (f *textFormatter) Format(e *logrus.Entry) ([]byte, error) {
	e.Message = string(termtext.Plain(nil, []byte(e.Message)))
	return f.TextFormatter.Format(e)
}

// newJobOutput returns where the output of jobs goes: as plain lines to standard
// output where the log is text for people, else nil, which makes them entries of
// the log.
func newJobOutput(c *config.Config) *agent.JobOutput {
	if c.Syslog || c.LogFormat == config.LogJSON {
		return nil
	}
	return agent.NewJobOutput(os.Stdout)
}
