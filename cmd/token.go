package cmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"plantstore/auth"
	"plantstore/database"
	"plantstore/models"
)

func newToken(s *settings) *cobra.Command {
	return newGroup("token", "Create, list and revoke bearer tokens in the database of the service", "token list",
		newTokenCreate(s), newTokenList(s), newTokenRevoke(s))
}

// audit logs a change that this command has made.
func audit(log *zap.Logger, change, id string) {
	by := strconv.Itoa(os.Getuid())
	if u, err := user.Current(); err == nil && u.Username != "" {
		by = u.Username
	}
	log.Named(auth.AuditLog).Info(change, zap.String("id", id), zap.String("by", "cli:"+by))
}

// withTokens calls action with the tokens, the name of their database and its log. It does not migrate: that may
// end an older service.
func (s *settings) withTokens(ctx context.Context, action func(tokens *models.TokenStore, in string, log *zap.Logger) error) error {
	return s.withDatabase(ctx, false, func(db *database.DB, log *zap.Logger) error {
		if err := db.Schema.Require(ctx); err != nil {
			return err
		}
		return action(models.NewTokenStore(db), db.Name(), log)
	})
}

func newTokenCreate(s *settings) *cobra.Command {
	var name, scopes, expires string
	create := &cobra.Command{
		Use:   "create --name NAME",
		Short: "Create a token and print it; it cannot be shown again",
		Long: "Create a token and print it on standard output. It cannot be shown again: the service\n" +
			"stores only its SHA-256. The token is valid at once, without a restart.",
		Example: "  plantstore token create --name greenhouse --scope plants:read,plants:write --expires 90d",
		Args:    takes(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if name == "" {
				return withHelp(cmd, errors.New("--name is required"))
			}
			token, until := models.Token{Name: name}, "revoked"
			for scope := range strings.SplitSeq(scopes, ",") {
				token.Scopes = append(token.Scopes, models.Scope(strings.TrimSpace(scope)))
			}
			if cmd.Flags().Changed("expires") { // also to nothing, as by a variable that is not set
				at, err := after(time.Now().UTC(), expires)
				if err != nil {
					return usageError(fmt.Errorf("--expires %w", err))
				}
				token.ExpiresAt, until = &at, at.Format(time.RFC3339)
			}
			if err := token.Validate(time.Now()); err != nil {
				return usageError(err)
			}
			return s.withTokens(cmd.Context(), func(tokens *models.TokenStore, in string, log *zap.Logger) error {
				secret, err := tokens.Create(cmd.Context(), &token)
				if err != nil {
					return err
				}
				audit(log, "created a token", token.ID)
				if _, err := fmt.Println(secret); err != nil { // nothing else, for scripts
					return err
				}
				cmd.PrintErrf("created in %s for %s with scopes %s, valid until %s; not shown again; revoke it with `plantstore token revoke %s`\n",
					in, token.Name, token.Scopes, until, token.ID)
				return nil
			})
		},
	}
	create.Flags().StringVar(&name, "name", "", "owner or purpose of the token")
	create.Flags().StringVar(&scopes, "scope", string(models.ReadScope(s.resource.Name())),
		"comma-separated scopes: "+strings.Join(models.AllScopes().Names(), ", ")+", which implies the others")
	create.Flags().StringVar(&expires, "expires", "", "lifetime, such as 90d or 12h, or last day in UTC, such as 2027-03-31 (default: unlimited)")
	return s.addTo(create, databaseFlags)
}

// after returns the time after now by a Go duration, by a number of days, as in 90d, or at the end of a day.
func after(now time.Time, text string) (time.Time, error) {
	lifetime, err := time.ParseDuration(text)
	at := now.Add(lifetime)
	if number, ok := strings.CutSuffix(text, "d"); ok {
		var days int64
		days, err = strconv.ParseInt(number, 10, 32) // more would overflow a time.Time
		at = now.AddDate(0, 0, int(days))
	}
	if day, notDay := time.Parse(time.DateOnly, text); notDay == nil {
		at, err = day.AddDate(0, 0, 1), nil
	}
	if err != nil || !at.After(now) {
		return at, errors.New("must be a duration such as 90d or 12h, or a day such as 2027-03-31 that has not ended")
	}
	return at, nil
}

func newTokenList(s *settings) *cobra.Command {
	return s.addTo(&cobra.Command{
		Use: "list", Short: "List all tokens, including revoked and expired ones", Args: takes(0),
		Example: "  plantstore token list",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return s.withTokens(cmd.Context(), func(tokens *models.TokenStore, _ string, _ *zap.Logger) error {
				all, err := tokens.List(cmd.Context(), "", -1) // without a limit
				if err != nil {
					return err
				}
				table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
				_, _ = fmt.Fprintln(table, "PREFIX\tNAME\tSCOPES\tCREATED\tEXPIRES\tLAST USED\tSTATE")
				for _, t := range all {
					state := "active"
					switch {
					case t.RevokedAt != nil:
						state = "revoked " + moment(t.RevokedAt)
					case t.Expired(time.Now()):
						state = "expired"
					}
					_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", t.ID, visible(t.Name), strings.Join(t.Scopes.Names(), ","),
						moment(&t.CreatedAt), moment(t.ExpiresAt), moment(t.LastUsedAt), state)
				}
				return table.Flush()
			})
		},
	}, databaseFlags)
}

func moment(t *time.Time) string {
	if t == nil {
		return "never"
	}
	return t.UTC().Format("2006-01-02T15:04Z")
}

func newTokenRevoke(s *settings) *cobra.Command {
	return s.addTo(&cobra.Command{
		Use: "revoke PREFIX...", Short: fmt.Sprintf("Revoke tokens permanently, on all replicas within %.0f seconds", auth.EndsWithin.Seconds()), Args: takes(1),
		Example: "  plantstore token revoke pst_abcdefgh",
		RunE: func(cmd *cobra.Command, ids []string) error {
			for _, id := range ids {
				if !models.TokenID.MatchString(id) {
					return usageError(fmt.Errorf("revoke takes prefixes of tokens as shown by `plantstore token list`: %d characters, such as pst_abcdefgh", models.TokenIDLength))
				}
			}
			return s.withTokens(cmd.Context(), func(tokens *models.TokenStore, in string, log *zap.Logger) error {
				for _, id := range ids {
					err := tokens.Revoke(cmd.Context(), id)
					if _, ok := errors.AsType[*models.NotFoundError](err); ok {
						err = errors.New("no such token, or already revoked: see `plantstore token list`")
					}
					if err != nil {
						return fmt.Errorf("%s: %w", id, err)
					}
					audit(log, "revoked a token", id)
					fmt.Println("revoked", id, "in", in)
				}
				return nil
			})
		},
	}, databaseFlags)
}
