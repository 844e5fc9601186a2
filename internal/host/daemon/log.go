package daemon

import (
	"fmt"
	"io"
	"log/syslog"
	"os"

	"github.com/sirupsen/logrus"
	logrussyslog "github.com/sirupsen/logrus/hooks/syslog"

	"workflowagent/internal/agent"
	"workflowagent/internal/agent/config"
	"workflowagent/internal/termtext"
)

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
	return log, toSyslog(log, "", "")
}

// toSyslog sends a log only to the syslog daemon at an address, or to the system's own.
func toSyslog(log *logrus.Logger, network, address string) error {
	hook, err := logrussyslog.NewSyslogHook(network, address, syslog.LOG_DAEMON|syslog.LOG_INFO, "customer-managed-workflow-agent")
	if err != nil {
		return fmt.Errorf("syslog is true, but no syslog daemon can be reached: %w; start one, or set syslog to false", err)
	}
	log.AddHook(hook)
	log.SetOutput(io.Discard)
	return nil
}

// jobFormatter adds a job's other fields to lines with a job_id: most packages have only the id.
type jobFormatter struct {
	logrus.Formatter
	fields func(jobID string) logrus.Fields
}

func (f jobFormatter) Format(e *logrus.Entry) ([]byte, error) {
	if id, ok := e.Data["job_id"].(string); ok {
		for name, value := range f.fields(id) {
			if _, known := e.Data[name]; !known {
				e.Data[name] = value // of this entry's own copy
			}
		}
	}
	return f.Formatter.Format(e)
}

// textFormatter strips control characters from messages: they quote servers, engines and
// registries, and on a terminal logrus prints them verbatim.
type textFormatter struct{ logrus.TextFormatter }

func (f *textFormatter) Format(e *logrus.Entry) ([]byte, error) {
	e.Message = string(termtext.Plain(nil, []byte(e.Message)))
	return f.TextFormatter.Format(e)
}

// newJobOutput returns the destination of copies of jobs' output: plain lines on standard output if
// the log is text, otherwise nil, which makes the lines entries of the log.
func newJobOutput(c *config.Config) *agent.JobOutput {
	if c.Syslog || c.LogFormat == config.LogJSON {
		return nil
	}
	return agent.NewJobOutput(os.Stdout)
}
