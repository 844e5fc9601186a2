package doctor

import (
	"io/fs"
	"os"
	"syscall"

	"workflowagent/internal/checkup"
	"workflowagent/internal/server/config"
)

// serviceUser is the user of the service.
const serviceUser = "workflow-server"

// accountOf returns the user as whom the server runs: the owner of the data directory, or for a new installation the
// user of the service, or the current user.
func accountOf(c config.Config) checkup.Account {
	if info, err := os.Stat(c.DataDir); err == nil {
		if uid, ok := ownerOf(info); ok {
			return checkup.AccountOf(uid)
		}
	}
	if os.Geteuid() == 0 {
		if a, err := checkup.AccountNamed(serviceUser); err == nil {
			return a
		}
	}
	return checkup.AccountOf(os.Geteuid())
}

func ownerOf(info fs.FileInfo) (uid int, ok bool) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int(stat.Uid), true
}

// Readers returns the group of the server's user, which must be able to read a new configuration file of root. It
// returns nil if the file needs no group.
func Readers(c config.Config) *int {
	a := accountOf(c)
	if os.Geteuid() != 0 || a.UID == 0 {
		return nil
	}
	return &a.GID
}
