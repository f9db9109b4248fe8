import { string } from '@oclif/core/flags'
import { ApiCommand } from '../src/cli/command.ts'
import { mutationFlags, textArg } from '../src/cli/flags.ts'
import { sendRawRequest } from '../src/cli/raw-request.ts'

export default class Api extends ApiCommand {
  static override summary = 'Call any path of the API'
  static override examples = [
    'svc api GET /orgs/sites\n{\n  "data": [],\n  "pagination": {\n    "page": 1,\n    "limit": 50,\n    "total": 0\n  }\n}',
    'svc api POST /orgs/organizations -d @organization.json',
    'svc api DELETE /enrollment-keys/0197c1c4-7a55-7c3e-9d2f-0c7d5c1b2a11',
  ]
  static override args = {
    method: textArg('GET, POST, PUT, PATCH or DELETE'),
    path: textArg('Path below /api/v1, with its query string'),
  }
  static override flags = {
    ...mutationFlags,
    data: string({ char: 'd', description: 'Body: JSON, @file or - for standard input', helpValue: 'JSON' }),
  }

  async run(): Promise<void> {
    const { args, flags } = await this.parse(Api)
    await sendRawRequest(this.open(flags), String(args.method), String(args.path), flags)
  }
}
