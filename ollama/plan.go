package main

import (
	"context"
	"encoding/json"
	"fmt"
	"sort"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ollama/ollama/format"

	"kafila/ollama/pb"
)

// What `kafila-plan` prints; null means not known.
type plan struct {
	Admitted         bool     `json:"admitted"`
	Reason           string   `json:"reason"`
	Suggestions      []string `json:"suggestions"`
	Tier             string   `json:"tier"`
	Search           string   `json:"search"`
	Head             string   `json:"head"`
	Stages           []stage  `json:"stages"`
	Hops             []hop    `json:"hops"`
	CircuitS         *float64 `json:"circuit_s"`
	TokensPerS       *float64 `json:"tokens_per_s"`
	TokensPerSOneUse *float64 `json:"tokens_per_s_one_user"`
	Idle             []idle   `json:"idle"`
}

type stage struct {
	Member        string   `json:"member"`
	Start         uint32   `json:"start"`
	End           uint32   `json:"end"`
	CostS         *float64 `json:"cost_s"`
	ResidentBytes float64  `json:"resident_bytes"`
}

type hop struct {
	To    string   `json:"to"`
	Path  string   `json:"path"`
	CostS *float64 `json:"cost_s"`
}

type idle struct {
	Member         string   `json:"member"`
	Why            string   `json:"why"`
	TokensPerSWith *float64 `json:"tokens_per_s_with"`
}

// The part of the planner's input that a person wants beside its output.
type problem struct {
	Concurrency uint32 `json:"concurrency"`
	Members     []struct {
		Name        string  `json:"name"`
		MemoryBytes float64 `json:"memory_bytes"`
	} `json:"members"`
}

func planCommand() *cobra.Command {
	var request pb.PlanRequest
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "plan [SESSION|MODEL]",
		Short: "Show who would hold what, and how fast that would be, before anything is downloaded",
		Long:  "The plan of a formed session, by its code or id, or of a model on this machine alone.",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var reply pb.PlanReply
			c := newControl()
			if err := planSubject(cmd.Context(), c, args, &request); err != nil {
				return err
			}
			if err := c.post(cmd.Context(), "plan", &request, &reply); err != nil {
				return err
			}
			text, err := planText(&reply)
			if err != nil {
				return err
			}
			return show(asJSON, &reply, func() string { return text })
		},
	}
	cmd.Flags().Uint32Var(&request.ContextTokens, "context", 0, "For a model: tokens of context for each sequence")
	cmd.Flags().Uint32Var(&request.Concurrency, "concurrency", 0, "For a model: sequences at once")
	addJSON(cmd, &asJSON)
	return cmd
}

// planSubject takes the argument for a session if there is one of that name, else for a model.
func planSubject(ctx context.Context, c *control, args []string, request *pb.PlanRequest) error {
	if len(args) == 0 {
		session, err := c.only(ctx)
		request.Session = session.GetId()
		return err
	}
	var all pb.ListSessionsReply
	if err := c.get(ctx, "list", nil, &all); err != nil {
		return err
	}
	for _, session := range all.Sessions {
		if session.State != closed && names(session, args[0]) {
			request.Session = session.Id
			return nil
		}
	}
	var err error
	request.Model, err = modelArgument(args[0])
	return err
}

// names is true if a person may have meant this session: by its id, its code, or the code's number.
func names(session *pb.Session, name string) bool {
	number, _, _ := strings.Cut(session.Code, "-")
	return name != "" && (name == session.Id || name == session.Code || name == number)
}

// planText is the plan for people, with its alternatives and what each member will download.
func planText(reply *pb.PlanReply) (string, error) {
	var main plan
	var asked problem
	if err := json.Unmarshal([]byte(reply.PlanJson), &main); err != nil {
		return "", fmt.Errorf("the plan can't be read: %w", err)
	}
	if reply.ProblemJson != "" {
		if err := json.Unmarshal([]byte(reply.ProblemJson), &asked); err != nil {
			return "", fmt.Errorf("the plan's problem can't be read: %w", err)
		}
	}
	var text strings.Builder
	if !main.Admitted {
		text.WriteString("No plan: " + main.Reason + "\n")
		for _, suggestion := range main.Suggestions {
			text.WriteString("  - " + suggestion + "\n")
		}
		return text.String(), nil
	}
	table(&text, planRows(&main, &asked, reply.DownloadBytes))
	fmt.Fprintf(&text, "\nExpected: %s alone, %s for %d at once (%s, %s search)\n",
		rate(main.TokensPerSOneUse), rate(main.TokensPerS), max(asked.Concurrency, 1), main.Tier, main.Search)
	for _, left := range main.Idle {
		fmt.Fprintf(&text, "%s stands by: %s (with it %s)\n", left.Member, left.Why, rate(left.TokensPerSWith))
	}
	alternatives, err := alternativeRows(reply.AlternativesJson)
	if err == nil && len(alternatives) > 1 {
		text.WriteByte('\n')
		table(&text, alternatives)
	}
	return text.String(), err
}

func planRows(p *plan, asked *problem, downloads map[string]uint64) []string {
	usable := map[string]float64{}
	for _, member := range asked.Members {
		usable[member.Name] = member.MemoryBytes
	}
	rows := []string{"MEMBER\tROLE\tBLOCKS\tMEMORY\tOF\tDOWNLOADS\tA TOKEN\tHOP TO\tPATH\tONE WAY"}
	for i, s := range p.Stages {
		role, next := "stage", hop{}
		if s.Member == p.Head {
			role = "head"
		}
		if i < len(p.Hops) {
			next = p.Hops[i]
		}
		rows = append(rows, strings.Join([]string{
			s.Member, role, blocks(s.Start, s.End), format.HumanBytes(int64(s.ResidentBytes)),
			format.HumanBytes(int64(usable[s.Member])), format.HumanBytes(int64(downloads[s.Member])), known(s.CostS),
			orDash(next.To), orDash(next.Path), known(next.CostS),
		}, "\t"))
	}
	return rows
}

// alternativeRows compares the objectives, by name.
func alternativeRows(byObjective map[string]string) ([]string, error) {
	objectives := make([]string, 0, len(byObjective))
	for objective := range byObjective {
		objectives = append(objectives, objective)
	}
	sort.Strings(objectives)
	rows := []string{"IF BEST FOR\tMEMBERS\tHEAD\tALONE\tAT FULL LOAD"}
	for _, objective := range objectives {
		var p plan
		if err := json.Unmarshal([]byte(byObjective[objective]), &p); err != nil {
			return nil, fmt.Errorf("the plan for %s can't be read: %w", objective, err)
		}
		members := make([]string, len(p.Stages))
		for i, s := range p.Stages {
			members[i] = s.Member
		}
		rows = append(rows, strings.Join([]string{
			objective, orDash(strings.Join(members, ", ")), orDash(p.Head), rate(p.TokensPerSOneUse), rate(p.TokensPerS),
		}, "\t"))
	}
	return rows, nil
}

func known(s *float64) string {
	if s == nil {
		return "–"
	}
	return milliseconds(*s)
}

func rate(tokensPerS *float64) string {
	if tokensPerS == nil {
		return "not known"
	}
	return fmt.Sprintf("%.1f tokens/s", *tokensPerS)
}
