package install

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"

	"workflowagent/internal/host/release"
)

// ask asks a yes-or-no question on the terminal. It opens the terminal by name, because standard
// input may be the script install.sh.
func (i *installer) ask(question string) bool {
	if i.Yes {
		return true
	}
	tty := i.terminal()
	if tty == nil {
		return false
	}
	defer func() { _ = tty.Close() }() // every write has completed
	fmt.Fprintf(tty, "%s [y/N] ", question)
	answer, _ := bufio.NewReader(tty).ReadString('\n') // a missing response means no
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return true
	}
	return false
}

// terminal opens the process's controlling terminal. It returns nil if there is none, or with
// --silent.
func (i *installer) terminal() *os.File {
	if i.Silent {
		return nil
	}
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return nil
	}
	return tty
}

func (i *installer) linkSystem() {
	for _, name := range []string{release.Program, release.OldName} {
		link, target := filepath.Join(systemLinks, name), filepath.Join(i.at.Root, name)
		if now, err := os.Readlink(link); err == nil && now == target {
			continue
		}
		if info, err := os.Lstat(link); err == nil && info.Mode()&os.ModeSymlink == 0 {
			i.warn(fmt.Errorf("%s is not a link of this installation and was left unchanged: remove it to start the agent by its name", link))
			continue
		}
		err := os.MkdirAll(systemLinks, 0o755)
		if err == nil {
			_ = os.Remove(link + ".new") // a leftover of an interrupted installation
			err = os.Symlink(target, link+".new")
		}
		if err == nil {
			err = os.Rename(link+".new", link)
		}
		if err != nil {
			i.fail(fmt.Errorf("creating the link %s: %w", link, err))
		}
	}
}

func (i *installer) unlinkSystem() error {
	for _, name := range []string{release.Program, release.OldName} {
		link := filepath.Join(systemLinks, name)
		if target, err := os.Readlink(link); err == nil && target == filepath.Join(i.at.Root, name) {
			if err := os.Remove(link); err != nil {
				return err
			}
		}
	}
	return nil
}

func (i *installer) profileLine() string {
	return `export PATH="$PATH":'` + strings.ReplaceAll(i.at.Root, "'", `'\''`) + "'"
}

// profile returns the path of the profile file of the user's shell, or "" if it is unknown.
func (i *installer) profile() string {
	if i.home == "" {
		return ""
	}
	switch filepath.Base(os.Getenv("SHELL")) {
	case "zsh":
		if dir := os.Getenv("ZDOTDIR"); dir != "" {
			return filepath.Join(dir, ".zshrc")
		}
		return filepath.Join(i.home, ".zshrc")
	case "bash":
		if runtime.GOOS == "darwin" {
			return filepath.Join(i.home, ".bash_profile")
		}
		return filepath.Join(i.home, ".bashrc")
	case "sh", "dash", "ash", "ksh", "mksh", "busybox":
		return filepath.Join(i.home, ".profile")
	}
	return ""
}

// olderLine matches the line that older installers add to a profile to extend the PATH.
var olderLine = regexp.MustCompile(`(?m)^[^#\n]*PATH.*/\.pulumi/bin/` + release.Program)

// extended reports whether a profile already extends the PATH.
func (i *installer) extended(profile string) bool {
	text, err := os.ReadFile(profile)
	if err != nil {
		return false
	}
	usual := i.at.Root == filepath.Join(i.home, ".pulumi", "bin", release.Program)
	return strings.Contains(string(text), i.profileLine()) || usual && olderLine.Match(text)
}

func (i *installer) extendPath() {
	if i.NoPath || inPath(i.at.Root) {
		return
	}
	profile, line := i.profile(), i.profileLine()
	if profile != "" && i.extended(profile) {
		i.say("Open a new shell: %s already adds the agent to PATH.", profile)
		return
	}
	if profile != "" && !i.Silent && i.ask(fmt.Sprintf("Add %s to PATH in %s?", i.at.Root, profile)) {
		err := appendTo(profile, fmt.Sprintf("\n# %s\n%s\n", release.Program, line))
		if err == nil {
			i.say("Added to %s. Open a new shell, or run: %s", profile, line)
			return
		}
		i.warn(err)
	}
	profile = cmp.Or(profile, "the profile of your shell")
	// Print this even with --silent, because the user must add the line.
	fmt.Fprintf(i.Out, "To have the agent in your PATH, add this line to %s:\n  %s\n", profile, line)
}

func appendTo(path, text string) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	_, err = io.WriteString(file, text)
	if closed := file.Close(); err == nil {
		err = closed
	}
	return err
}
