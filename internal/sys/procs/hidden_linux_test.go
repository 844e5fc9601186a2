package procs

import (
	"bufio"
	"strings"
	"testing"

	"workflowagent/internal/dev/must"
)

func TestHides(t *testing.T) {
	const root = "22 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n"
	for name, test := range map[string]struct {
		mounts string
		want   bool
	}{
		"the default":             {root + "24 22 0:22 / /proc rw,nosuid shared:5 - proc proc rw\n", false},
		"ProtectProc=invisible":   {root + "24 22 0:22 / /proc rw shared:5 - proc proc rw\n40 24 0:50 / /proc rw,nosuid - proc proc rw,hidepid=invisible\n", true},
		"a number":                {root + "24 22 0:22 / /proc rw - proc proc rw,gid=4,hidepid=2\n", true},
		"an exempt group":         {root + "24 22 0:22 / /proc rw - proc proc rw,gid=1001,hidepid=2\n", false},
		"no access to others":     {root + "24 22 0:22 / /proc rw - proc proc rw,hidepid=noaccess\n", true},
		"switched off":            {root + "24 22 0:22 / /proc rw - proc proc rw,hidepid=off\n", false},
		"covered by a default":    {root + "24 22 0:22 / /proc rw - proc proc rw,hidepid=2\n40 24 0:50 / /proc rw - proc proc rw\n", false},
		"of a container below":    {root + "24 22 0:22 / /proc rw - proc proc rw\n40 22 0:50 / /srv/root/proc rw - proc proc rw,hidepid=2\n", false},
		"something else on /proc": {root + "24 22 0:22 / /proc/sys/fs rw - binfmt_misc x rw,hidepid=2\n", false},
	} {
		if got := must.Get(hides(bufio.NewScanner(strings.NewReader(test.mounts)), []int{1000, 1001}))(t); got != test.want {
			t.Errorf("%s: hides = %v", name, got)
		}
	}
}
