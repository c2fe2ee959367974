package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"kafila/ollama/internal/control"
	"kafila/ollama/internal/logbook"
	"kafila/ollama/internal/report"
	"kafila/ollama/pb"
)

// tracesReported is how many requests of each session a report tells of.
const tracesReported = 50

func reportCommand() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "report",
		Short: "Pack what helps to find a fault into one file, to be attached to an issue",
		Long: "Versions, doctor, status, plans, traces and logs, without prompts, names of members, addresses, codes and keys:\n" +
			"members are called member-1, member-2, … throughout. Look into it before you pass it on: it is a plain tar.gz.\n" +
			"Where no server runs, it holds the versions and the logs.",
		Args:              arguments(0, 0),
		PersistentPreRunE: needsNoServer,
		RunE: func(cmd *cobra.Command, _ []string) error {
			folder, err := logbook.Folder()
			if err != nil {
				return err
			}
			if file == "" {
				file = "kafila-report-" + time.Now().Format("20060102-150405") + ".tar.gz"
			}
			return packReport(cmd.Context(), control.FromEnvironment(), folder, file, screenOf(cmd))
		},
	}
	cmd.Flags().StringVarP(&file, "output", "o", "", "Write to `FILE` (default kafila-report-DATE.tar.gz, here)")
	addJSON(cmd)
	return cmd
}

func packReport(ctx context.Context, c *control.Client, logs, file string, s screen) error {
	stop := s.spin("gathering")
	gathered, err := gather(ctx, c, logs)
	stop()
	if err != nil {
		return err
	}
	to, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	err = gathered.Pack(to)
	if closed := to.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return err
	}
	if s.asJSON {
		return s.object(map[string]string{"file": file})
	}
	s.say("It has no prompts, names, addresses, codes or keys. Look into it before you pass it on.")
	_, err = fmt.Fprintln(s.out, file)
	return err
}

// gather asks the server for all that a report has; what it doesn't answer is left out, and why is said.
func gather(ctx context.Context, c *control.Client, logs string) (*report.Report, error) {
	gathered := report.New(ownVersions())
	entries, err := logbook.Read(logs)
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		line, err := json.Marshal(entry)
		if err != nil {
			return nil, err
		}
		gathered.Add("logs.jsonl", line)
	}
	var all pb.ListSessionsReply
	if err := c.Get(ctx, "list", nil, &all); err != nil {
		gathered.Lacks("sessions", err)
		return gathered, nil
	}
	gathered.Message("sessions.json", &all)
	ask(gathered, "doctor.json", &pb.DoctorReply{}, func(reply proto.Message) error {
		return c.Post(ctx, "doctor", &pb.DoctorRequest{}, reply)
	})
	ask(gathered, "weights.json", &pb.ListWeightsReply{}, func(reply proto.Message) error {
		return c.Get(ctx, "weights", nil, reply)
	})
	for _, session := range all.Sessions {
		gathered.Session(session)
		ask(gathered, "plans.jsonl", &pb.PlanReply{}, func(reply proto.Message) error {
			return c.Post(ctx, "plan", &pb.PlanRequest{Session: session.Id}, reply)
		})
		ask(gathered, "traces.jsonl", &pb.TracesReply{}, func(reply proto.Message) error {
			return c.Post(ctx, "traces", &pb.TracesRequest{Session: session.Id, Most: tracesReported}, reply)
		})
	}
	return gathered, nil
}

func ask(gathered *report.Report, name string, reply proto.Message, call func(proto.Message) error) {
	if err := call(reply); err != nil {
		gathered.Lacks(name, err)
		return
	}
	gathered.Message(name, reply)
}
