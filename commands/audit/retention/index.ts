export { default } from './show.ts'
