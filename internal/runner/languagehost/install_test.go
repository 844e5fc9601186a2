package languagehost

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"workflowagent/internal/dev/must"
)

func TestInstall(t *testing.T) {
	home, other, dir := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "bin")
	file := filepath.Join(home, "file")
	must.OK(t, os.WriteFile(file, nil, 0o600))
	inHome := filepath.Join(home, ".pulumi", "plugins", plugin)
	owner := t.TempDir()
	system := passwdHome
	t.Cleanup(func() { passwdHome = system })
	for _, tt := range []struct {
		runner    string
		env, want []string // want is env, with a PATH if the host is in dir
		in        string
		passwd    string // the user's home directory in the system's database
	}{
		{"/old/runner", []string{"HOME=" + home}, nil, inHome, ""},
		{"/new/runner", []string{"HOME=" + home, "PULUMI_HOME="}, nil, inHome, ""},
		{"/new/runner", []string{"HOME=" + home, "PATH=/bin"}, nil, inHome, ""},
		{"/other/runner", []string{"PULUMI_HOME=" + other, "HOME=" + home}, nil, filepath.Join(other, "plugins", plugin), owner},
		// The CLI does not look into HOME.
		{"/runner", []string{"HOME=" + home}, nil, filepath.Join(owner, ".pulumi", "plugins", plugin), owner},
		// The directory cannot be written.
		{"/runner", []string{"PATH=/bin:/usr/bin", "HOME=" + file, "A=b"}, []string{"PATH=/bin:/usr/bin:" + dir, "HOME=" + file, "A=b"}, dir, ""},
		{"/runner", []string{"PULUMI_HOME=relative"}, []string{"PULUMI_HOME=relative", "PATH=" + dir}, dir, ""},
	} {
		if tt.want == nil {
			tt.want = tt.env
		}
		passwdHome = func() string { return tt.passwd }
		before := fmt.Sprint(tt.env)
		env := must.Get(Install(tt.env, tt.runner, dir))(t)
		if fmt.Sprint(env) != fmt.Sprint(tt.want) || fmt.Sprint(tt.env) != before {
			t.Errorf("%q became %q, want %q", before, env, tt.want)
		}
		if got := must.Get(os.Readlink(filepath.Join(tt.in, Program)))(t); got != tt.runner {
			t.Errorf("%s leads to %s, want %s", tt.in, got, tt.runner)
		}
	}
	if _, err := Install(nil, "/runner", filepath.Join(file, "bin")); err == nil {
		t.Error("the host was installed in a file")
	}
}
