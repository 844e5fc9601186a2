package lab

import (
	"errors"
	"os"
	"testing"

	"workflowagent/internal/dev/must"
)

func TestMachine(t *testing.T) {
	if reason, ok := MachineAvailable(); !ok {
		t.Skip(reason)
	}
	dir := must.Get(os.MkdirTemp("", "machine"))(t)
	m := must.Get(BootMachine(t.Context(), dir, os.Stderr))(t)
	if out, err := m.Run(t.Context(), "systemctl show --property=Version --value && ps -p 1 -o comm="); err != nil {
		t.Errorf("%s: %v", out, err)
	}
	_, err := m.Run(t.Context(), "exit 7")
	if failed, ok := errors.AsType[*ScriptError](err); !ok || failed.Code != 7 {
		t.Errorf("got %v", err)
	}
	for name, off := range map[string]func() error{"PowerOff": m.PowerOff, "CutPower": func() error { return m.CutPower(t.Context()) }} {
		if _, err := m.Run(t.Context(), "test ! -e /run/on && touch /run/on && echo "+name+" >>/root/kept"); err != nil {
			t.Error(err)
		}
		must.OK(t, errors.Join(off(), m.Boot(t.Context())))
	}
	if out, err := m.Run(t.Context(), "test ! -e /run/on && grep -c . /root/kept"); err != nil || out != "2\n" {
		t.Errorf("after two boots: %q, %v", out, err)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("left behind: %v", err)
	}
}
