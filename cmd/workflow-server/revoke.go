package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"workflowagent/cmd/internal/operator"
	"workflowagent/cmd/internal/program"
	"workflowagent/internal/server/admin"
	"workflowagent/internal/server/recovery"
)

func newRevokeTokensCommand(s source) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "revoke-tokens",
		Short: "Revoke the tokens of the backup of a restored server",
		Long: `Revoke the tokens that the backup contains, because those that were revoked since the backup are
valid again: all with --all, or those of some kinds with --kind. Tokens that were created since the
restore remain.

Clients and agents with these tokens fail at once, and need new ones. Running deployments continue.
Sessions that began with one of the tokens end. "workflow-server token create" creates a token for
an administrator who has no other way to sign in.

` + through,
		Example: `  workflow-server restore revoke-tokens --all
  workflow-server restore revoke-tokens --kind access --kind exchanged
  workflow-server restore revoke-tokens --kind pool --json`,
		Args: operator.NoArgs,
	}
	asJSON := jsonFlag(cmd)
	all := cmd.Flags().Bool("all", false, "revoke the tokens of all kinds")
	names := cmd.Flags().StringSlice("kind", nil, "kinds of the tokens: access (of users, organizations and teams), pool (of agent pools), exchanged (for identity tokens of other issuers)")
	var completions []cobra.Completion
	for _, k := range recovery.TokenKinds() {
		completions = append(completions, string(k))
	}
	_ = cmd.RegisterFlagCompletionFunc("kind", cobra.FixedCompletions(completions, cobra.ShellCompDirectiveNoFileComp)) // fails only for an undefined flag
	revoke := newAdministration(s, cmd, func(ctx context.Context, c admin.Caller) error {
		q := admin.RestoredTokens{Kinds: recovery.TokenKinds()}
		if !*all {
			q.Kinds = nil
			for _, name := range *names {
				q.Kinds = append(q.Kinds, recovery.TokenKind(name))
			}
		}
		r, err := admin.RevokeRestored.Do(ctx, c, q)
		if err != nil {
			return err
		}
		if *asJSON {
			return operator.PrintJSON(cmd.OutOrStdout(), r)
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "Revoked %d tokens of users, organizations and teams, %d of agent pools, and %d that were exchanged for identity tokens.\n",
			r[recovery.AccessTokens], r[recovery.PoolTokens], r[recovery.ExchangedTokens])
		return err
	})
	revoke.PreRunE = func(*cobra.Command, []string) error {
		if *all == (len(*names) > 0) {
			return program.Usage(errors.New("name kinds of tokens with --kind, or all with --all"))
		}
		return nil
	}
	return revoke
}
