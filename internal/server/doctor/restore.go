package doctor

import (
	"context"
	"fmt"
	"strings"
	"time"

	"workflowagent/internal/checkup"
	"workflowagent/internal/server/recovery"
)

// checkRestore reports a server that was restored from a backup, and waits for its release.
func (e *examination) checkRestore(ctx context.Context) checkup.Result {
	if e.db == nil {
		return checkup.Skip("not checked, because of: database schema")
	}
	r, err := recovery.Read(ctx, e.db)
	switch {
	case err != nil:
		return fail(databaseFailed, err.Error(), "check the log of the database")
	case r == nil:
		return checkup.OK("the installation was not restored from a backup")
	}
	restored := "the installation was restored from the backup of " + r.Backup.Format(time.RFC3339)
	switch waiting := r.Waiting(); {
	case !r.Prepared:
		return warn(restorePaused, restored+", and its server has not started since", "start the server, then run: workflow-server restore status")
	case len(waiting) > 0:
		names := make([]string, len(waiting))
		for i, o := range waiting {
			names[i] = o.Name
		}
		return warn(restorePaused, fmt.Sprintf("%s, and is paused until the release of %s", restored, strings.Join(names, ", ")),
			"check what workflow-server restore status lists, then run: workflow-server restore release --all")
	}
	return checkup.OK(restored + ", and is released")
}
