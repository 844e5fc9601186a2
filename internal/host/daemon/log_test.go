package daemon

import (
	"bytes"
	"encoding/json"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/agent/config"
)

// daemon listens in place of a syslog daemon. next returns the next message.
func daemon(t *testing.T) (address string, next func() string) {
	t.Helper()
	address = filepath.Join(t.TempDir(), "log")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram", Name: address})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return address, func() string {
		t.Helper()
		if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 64<<10)
		n, err := conn.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		return string(buf[:n])
	}
}

func TestSyslogGetsEveryLine(t *testing.T) {
	for _, format := range []config.LogFormat{config.LogText, config.LogJSON} {
		t.Run(string(format), func(t *testing.T) {
			log, err := newLog(&config.Config{LogFormat: format}, false)
			if err != nil {
				t.Fatal(err)
			}
			var stderr bytes.Buffer
			log.SetOutput(&stderr)
			address, next := daemon(t)
			if err := toSyslog(log, "unixgram", address); err != nil {
				t.Fatal(err)
			}
			log.SetFormatter(jobFormatter{log.Formatter, func(string) logrus.Fields { return logrus.Fields{"stack": "a/b/c"} }})
			for _, tt := range []struct {
				write    func(args ...any)
				priority string // facility daemon (3) * 8 + severity
			}{
				{log.WithField("job_id", "j-1").Info, "<30>"},
				{log.WithField("job_id", "j-1").Warn, "<28>"},
				{log.WithField("job_id", "j-1").Error, "<27>"},
			} {
				tt.write("a line about a job\nand more")
				got := next()
				if !strings.HasPrefix(got, tt.priority) || !strings.Contains(got, "customer-managed-workflow-agent[") || strings.Count(strings.TrimRight(got, "\n"), "\n") > 0 {
					t.Errorf("got %q", got)
				}
				for _, want := range []string{"a line about a job", "j-1", "a/b/c"} {
					if !strings.Contains(got, want) {
						t.Errorf("%q lacks %s", got, want)
					}
				}
			}
			if stderr.Len() > 0 {
				t.Errorf("standard error has it too: %s", &stderr)
			}
		})
	}
}

func TestSyslogThatIsNotThere(t *testing.T) {
	log, err := newLog(&config.Config{LogFormat: config.LogText}, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := toSyslog(log, "unixgram", filepath.Join(t.TempDir(), "nothing")); err == nil || !strings.Contains(err.Error(), "set syslog to false") {
		t.Errorf("got %v", err)
	}
}

func TestLinesAboutJobsAreCompleted(t *testing.T) {
	log := logrus.New()
	var out bytes.Buffer
	log.SetOutput(&out)
	log.SetFormatter(jobFormatter{&logrus.JSONFormatter{}, func(id string) logrus.Fields {
		if id != "j-1" {
			return nil
		}
		return logrus.Fields{"job_id": id, "deployment_id": "d-1", "stack": "a/b/c", "pool": "p-1"}
	}})
	for _, tt := range []struct {
		fields, want logrus.Fields
	}{
		{logrus.Fields{"job_id": "j-1"}, logrus.Fields{"job_id": "j-1", "deployment_id": "d-1", "stack": "a/b/c", "pool": "p-1"}},
		{logrus.Fields{"job_id": "j-1", "stack": "its own"}, logrus.Fields{"job_id": "j-1", "deployment_id": "d-1", "stack": "its own", "pool": "p-1"}},
		{logrus.Fields{"job_id": "j-2"}, logrus.Fields{"job_id": "j-2"}},
		{logrus.Fields{}, logrus.Fields{}},
	} {
		out.Reset()
		entry := log.WithFields(tt.fields)
		before := len(entry.Data)
		entry.Info("x")
		var got logrus.Fields
		if err := json.Unmarshal(out.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		for name, value := range tt.want {
			if got[name] != value {
				t.Errorf("%v: %s is %v, want %v", tt.fields, name, got[name], value)
			}
		}
		if len(got) != len(tt.want)+3 || len(entry.Data) != before { // level, msg, time
			t.Errorf("%v became %v, the entry %v", tt.fields, got, entry.Data)
		}
	}
}
