package operator

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"workflowagent/internal/checkup"
)

// Doctor runs a program's checks. It calls done with each result, and progress with a line for each
// slow operation, unless they are nil.
type Doctor func(ctx context.Context, done func(checkup.Result), progress func(line string)) (checkup.Report, error)

// RunDoctor runs a doctor and prints its report, as text while the checks run or as JSON. Its error
// says that a check failed, or that the doctor was interrupted.
func RunDoctor(cmd *cobra.Command, asJSON bool, examine Doctor) error {
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	out := cmd.OutOrStdout()
	var done func(checkup.Result)
	var progress func(string)
	if !asJSON {
		file, isFile := out.(*os.File)
		colour := isFile && os.Getenv("NO_COLOR") == "" && term.IsTerminal(int(file.Fd()))
		done = func(r checkup.Result) { checkup.Print(out, r, colour) }
		progress = func(line string) { fmt.Fprintln(cmd.ErrOrStderr(), "...", line) }
	}
	report, err := examine(ctx, done, progress)
	if err != nil {
		return err
	}
	if asJSON {
		if err := PrintJSON(out, report); err != nil {
			return err
		}
	} else {
		fmt.Fprintf(out, "\n%s\n", checkup.Summary(report))
	}
	switch {
	case ctx.Err() != nil:
		return errors.New("stopped before all checks had finished")
	case !report.OK:
		return errors.New("a check failed: see the lines that begin with fail")
	}
	return nil
}
