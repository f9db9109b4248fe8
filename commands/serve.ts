import { Command, Flags } from '@oclif/core'

export default class Serve extends Command {
  static override summary = 'Run the service'
  static override description =
    'Runs the complete REST service on an SQLite database in the data directory, or on Postgres when DATABASE_URL is set. ' +
    'Prints one line on stdout when it listens; logs go to stderr. SIGTERM and Ctrl-C finish requests in progress, then stop it. SIGHUP takes secrets that have changed.'
  static override examples = [
    '<%= config.bin %> serve',
    '<%= config.bin %> serve --port 8080 --data-dir /var/lib/svc',
    'DATABASE_URL=postgres://svc@db/svc <%= config.bin %> serve --host 0.0.0.0',
  ]
  static override flags = {
    host: Flags.string({ description: 'Address to listen on (HOST; default 127.0.0.1)' }),
    port: Flags.integer({
      description: 'Port to listen on, 0 picks a free one (PORT; default 3000)',
      min: 0,
      max: 65535,
    }),
    'data-dir': Flags.string({
      description: 'Directory of the database and generated secrets (SVC_DATA_DIR; default ./data)',
    }),
    json: Flags.boolean({ description: 'Print the address as JSON' }),
  }

  async run(): Promise<void> {
    const { flags } = await this.parse(Serve)
    // The server's libraries load only here, so that client commands never wait for them.
    const { runService } = await import('../daemon/run.ts')
    await runService(flags)
  }
}
