package service

import (
	"context"
	"fmt"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"workflowagent/internal/sys/initsystem"
)

// Become gives this process the user, the groups and the home directory of a service, if root runs it. It then has the
// same access to files and to the engine as the service.
func (r Registered) Become(ctx context.Context) error {
	if os.Geteuid() != 0 {
		return nil
	}
	ids, err := r.effective(ctx, initsystem.Exec{}).ids()
	if err == nil && ids.uid != 0 {
		err = ids.become()
	}
	if err != nil {
		return fmt.Errorf("becoming the user %s of the service %s: %w", r.Account, r.Name, err)
	}
	if r.StateDirectory != "" {
		return os.Setenv("HOME", r.StateDirectory) // as in the unit
	}
	return nil
}

// effective returns r with the account and the groups that drop-ins of the unit have changed.
func (r Registered) effective(ctx context.Context, commands initsystem.Runner) Registered {
	out, err := initsystem.Systemd{Commands: commands}.Ctl(ctx, "show", r.Name+".service", "--property=User,SupplementaryGroups")
	if err != nil {
		return r // the unit is what is known
	}
	for line := range strings.Lines(out) {
		switch key, value, _ := strings.Cut(strings.TrimSpace(line), "="); {
		case key == "User" && value != "":
			r.Account = value
		case key == "SupplementaryGroups":
			r.Groups = strings.Fields(value)
		}
	}
	return r
}

type identity struct {
	uid, gid int
	groups   []int
}

// ids returns the numbers of the account and its groups.
func (r Registered) ids() (identity, error) {
	var i identity
	u, err := user.Lookup(r.Account)
	if err != nil {
		return i, err
	}
	names, err := u.GroupIds()
	if err != nil {
		return i, err
	}
	for _, name := range r.Groups {
		group, err := user.LookupGroup(name)
		if err != nil {
			return i, err
		}
		names = append(names, group.Gid)
	}
	numbers := make([]int, 0, len(names)+2)
	for _, name := range append([]string{u.Uid, u.Gid}, names...) {
		number, err := strconv.Atoi(name)
		if err != nil {
			return i, fmt.Errorf("the ID %q is not a number: %w", name, err)
		}
		numbers = append(numbers, number)
	}
	slices.Sort(numbers[2:])
	return identity{uid: numbers[0], gid: numbers[1], groups: slices.Compact(numbers[2:])}, nil
}

func (i identity) become() error {
	if err := syscall.Setgroups(i.groups); err != nil {
		return err
	}
	if err := syscall.Setgid(i.gid); err != nil {
		return err
	}
	return syscall.Setuid(i.uid)
}
