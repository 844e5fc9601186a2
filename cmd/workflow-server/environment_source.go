package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"workflowagent/cmd/internal/operator"
	"workflowagent/internal/server/admin"
	"workflowagent/internal/termtext"
)

func newEnvironmentSourceCommand(s source) *cobra.Command {
	return operator.Group(
		&cobra.Command{
			Use: "source", Short: "Take an organization's environments from a repository",
			Long: `Take an organization's environments from the files PROJECT/ENVIRONMENT.yaml in a folder of a
repository. Each push to the branch synchronizes them. Environments that the repository does not
contain remain; with "set --delete", those that came from it are deleted. The server must be running.`,
			Example: "  workflow-server environment source set --org acme --repository acme/environments --branch main",
		},
		newSourceShowCommand(s), newSourceSetCommand(s), newSourceSyncCommand(s), newSourceRemoveCommand(s),
	)
}

const defaultOrg = "organization (default: the only one)"

func newSourceShowCommand(s source) *cobra.Command {
	cmd := &cobra.Command{
		Use: "show", Short: "Show from which repository environments come, and the state of the synchronization",
		Example: "  workflow-server environment source show --org acme",
		Args:    operator.NoArgs,
	}
	org, asJSON := orgFlag(cmd, defaultOrg), jsonFlag(cmd)
	return newAdministration(s, cmd, func(ctx context.Context, c admin.Caller) error {
		src, err := admin.ShowEnvironmentSource.Do(ctx, c, admin.SourceOf{Organization: *org})
		if err != nil {
			return err
		}
		if *asJSON {
			return operator.PrintJSON(cmd.OutOrStdout(), src)
		}
		deletes, checks := "no", "no"
		if src.Delete {
			deletes = "yes"
		}
		if src.Checks {
			checks = "yes"
		}
		return operator.PrintTable(cmd.OutOrStdout(), "SETTING|VALUE", [][]string{
			{"integration", src.Integration},
			{"repository", src.Repository},
			{"branch", src.Branch},
			{"folder", src.Folder},
			{"deletes", deletes},
			{"checks pull requests", checks},
			{"set by", src.SetBy},
			{"applied commit", src.Commit},
			{"applied at", at(src.Applied)},
			{"read commit", src.Read},
			{"problem", src.Problem},
		})
	})
}

func newSourceSetCommand(s source) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "set",
		Short: "Take environments from a repository",
		Long: `Take the environments of an organization from a repository of one of its integrations, now and at
each push to the branch. Use --dry-run first: existing environments get a new revision if the
repository has another definition.`,
		Example: `  workflow-server environment source set --org acme --repository acme/environments --branch main --dry-run
  workflow-server environment source set --org acme --repository acme/infra --branch main --folder esc --delete`,
		Args: operator.NoArgs,
	}
	var q admin.NewEnvironmentSource
	cmd.Flags().StringVar(&q.Organization, "org", "", defaultOrg)
	cmd.Flags().StringVar(&q.Integration, "integration", "", "name or id of the integration (default: the only one)")
	cmd.Flags().StringVar(&q.Repository, "repository", "", "the repository, as stacks name it: owner/name, for example")
	cmd.Flags().StringVar(&q.Branch, "branch", "main", "the branch")
	cmd.Flags().StringVar(&q.Folder, "folder", "", "the folder with the definitions (default: the root)")
	cmd.Flags().BoolVar(&q.Delete, "delete", false, "delete environments that came from the repository when it no longer contains them")
	cmd.Flags().BoolVar(&q.NoChecks, "no-checks", false, "do not check pull requests")
	cmd.Flags().BoolVar(&q.DryRun, "dry-run", false, "print what would change, and change nothing")
	cmd.MarkFlagsOneRequired("repository")
	return newAdministration(s, cmd, func(ctx context.Context, c admin.Caller) error {
		done, err := admin.SetEnvironmentSource.Do(ctx, c, q)
		if err != nil {
			return err
		}
		return printSync(cmd, done, "The server synchronizes the environments now: workflow-server environment source show")
	})
}

// printSync prints a dry run, or a text.
func printSync(cmd *cobra.Command, done admin.Synchronization, otherwise string) error {
	out := cmd.OutOrStdout()
	if done.Plan == nil {
		_, err := fmt.Fprintln(out, otherwise)
		return err
	}
	if _, err := fmt.Fprintln(out, "commit "+termtext.OneLine(done.Commit, maxShownLine)); err != nil {
		return err
	}
	err := printImport(out, admin.ImportedEnvironments{Plan: *done.Plan})
	if err == nil && done.Plan.Failed() {
		err = errors.New("the problems above prevent the synchronization")
	}
	return err
}

func newSourceSyncCommand(s source) *cobra.Command {
	cmd := &cobra.Command{
		Use: "sync", Short: "Synchronize environments with the newest commit again",
		Long: `Synchronize environments with the newest commit again, such as after one was changed by hand, or
after what prevented a synchronization was repaired.`,
		Example: "  workflow-server environment source sync --org acme --dry-run",
		Args:    operator.NoArgs,
	}
	var q admin.SyncOf
	cmd.Flags().StringVar(&q.Organization, "org", "", defaultOrg)
	cmd.Flags().BoolVar(&q.DryRun, "dry-run", false, "print what would change, and change nothing")
	return newAdministration(s, cmd, func(ctx context.Context, c admin.Caller) error {
		done, err := admin.SyncEnvironmentSource.Do(ctx, c, q)
		if err != nil {
			return err
		}
		return printSync(cmd, done, "The server synchronizes the environments now: workflow-server environment source show")
	})
}

func newSourceRemoveCommand(s source) *cobra.Command {
	cmd := &cobra.Command{
		Use: "remove", Short: "End the synchronization; environments remain",
		Example: "  workflow-server environment source remove --org acme",
		Args:    operator.NoArgs,
	}
	org := orgFlag(cmd, defaultOrg)
	return newAdministration(s, cmd, func(ctx context.Context, c admin.Caller) error {
		if _, err := admin.RemoveEnvironmentSource.Do(ctx, c, admin.SourceOf{Organization: *org}); err != nil {
			return err
		}
		_, err := fmt.Fprintln(cmd.OutOrStdout(), "Environments no longer come from a repository. They remain as they are.")
		return err
	})
}
